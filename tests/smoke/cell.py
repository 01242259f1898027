"""A cell: one query's lives on one platform, and what must be there afterwards. What was written is
read by Kafka's and Python's own means, in a process without exactum's sinks.

    python -m tests.smoke.PLATFORM                 every cell; ends with 1 where one is not exact
    python -m tests.smoke.PLATFORM CELL ...        these
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.kit.environment import environment
from tests.kit.process_tree import ProcessTree
from tests.kit.python import ran
from tests.kit.spark.files import InputFiles
from tests.kit.waiting import await_true

BATCHES, ROWS, KEYS = 5, 60, 7
"""Micro-batches, rows of each, and how many keys they have."""
LIFE_TIMEOUT_S = 600
DYING = "dying"
"""The file that says so, in the folder of a cell."""
C = TypeVar("C", bound="Cell")


class Life(ProcessTree):
    """The program ``life`` with a spec."""

    def __init__(self, folder: Path, number: int, spec: Mapping[str, Any]) -> None:
        self._said, self._dying = folder / f"said{number}", folder / DYING
        words = [sys.executable, "-m", "tests.smoke.life"]
        told = json.dumps({**spec, "said": str(self._said)})
        super().__init__([*words, told], folder / f"life{number}.log", folder, environment())

    def ends(self) -> dict[str, Any]:
        """How the query ended; {} where the process died. Nothing of it is left."""
        try:
            self.until(lambda: self._process.poll() is not None, "it ends", LIFE_TIMEOUT_S)
        finally:
            self.kill()
        return dict(json.loads(self._said.read_text())) if self._said.exists() else {}

    def finishes(self) -> dict[str, Any]:
        """How it ended, which is well."""
        said = self.ends()
        assert said and "error" not in said, said
        return said

    def dies(self) -> None:
        """Wait until it says that it dies now, and end what is left: a client that has lost its server
        tries for minutes.
        """
        try:
            self.until(self._dying.exists, "it dies", LIFE_TIMEOUT_S)
        finally:
            self.kill()
        self._dying.unlink()


class Cell:
    """``given``: what each life is told, unless it is told otherwise."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.folder = folder
        self.checkpoint, self.out = folder / "checkpoint", folder / "out"
        self.given = {"folder": str(folder), "checkpoint": str(self.checkpoint), **given}
        self._lives = 0
        self._input = InputFiles(folder / "in")

    def begin(self, frame: str = "plain", **spec: Any) -> Life:
        self._lives += 1
        return Life(self.folder, self._lives, {**self.given, "frame": frame, **spec})

    def life(self, frame: str = "plain", **spec: Any) -> dict[str, Any]:
        return self.begin(frame, **spec).ends()

    def finishes(self, frame: str = "plain", **spec: Any) -> dict[str, Any]:
        return self.begin(frame, **spec).finishes()

    def dies(self, frame: str = "plain", **spec: Any) -> None:
        """In the middle of what there is."""
        self.begin(frame, **spec).dies()
        assert self.logged("commits") < BATCHES - 1, "it was not killed"

    def give(self, *batches: int, **changes: str) -> None:
        """A file for each, which is one micro-batch: the query reads the oldest first."""
        for batch in batches:
            numbers = range(batch * ROWS, (batch + 1) * ROWS)
            self._input.give(row_of(n, **changes) for n in numbers)

    def command(self, *words: str, **variables: Any) -> str:
        """Of exactum, in a process of its own; what it said."""
        done = ran([sys.executable, "-m", "exactum.ops.cli", *words], **variables)
        return done.stdout + done.stderr

    def logged(self, log: str) -> int:
        """The highest batch in one of Spark's logs."""
        return max((int(p.name) for p in (self.checkpoint / log).glob("[0-9]*")), default=-1)

    def commits(self, batches: int) -> None:
        """Wait until so many are."""
        await_true(lambda: self.logged("commits") + 1 >= batches, f"{batches} micro-batches")

    def files(self) -> Counter[str]:
        paths = [p for p in self.out.rglob("*.json") if ".exactum" not in p.parts]
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return Counter(f"{row['k']}={row['id']}:{row['v']}" for row in rows)

    def found(self) -> Iterator[tuple[str, Counter[str]]]:
        """Where the rows are, and which."""
        yield "files", self.files()

    def check(self, expected: Counter[str]) -> None:
        for where, found in self.found():
            assert found == expected, (
                f"{where}: {(expected - found).total()} lost, {(found - expected).total()} too many"
            )


def row_of(number: int, **changes: str) -> dict[str, Any]:
    return {"id": number, "k": str(number % KEYS), "v": "v", **changes}


def all_rows(batches: int = BATCHES) -> Counter[str]:
    return Counter(f"{n % KEYS}={n}:v" for n in range(batches * ROWS))


def all_counts(last: int = BATCHES, first: int = 0) -> Counter[str]:
    """The count of each key after each micro-batch that has it."""
    found: Counter[str] = Counter()
    for batch in range(first, last):
        seen = Counter(str(n % KEYS) for n in range((batch + 1) * ROWS))
        found.update(f"{k}={n}:n" for k, n in seen.items())
    return found


def play(
    where: str,
    cells: Mapping[str, Callable[[C], None]],
    new: Callable[[Path], C],
    names: Sequence[str],
) -> int:
    """Play these cells, or all; the exit status."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="exactum-smoke-") as folder:
        for name in names or cells:
            began_s = time.monotonic()
            outcome = "exact"
            try:
                cells[name](new(Path(folder, name)))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                wrong.append(name)
                logs = [path.read_text()[-3000:] for path in Path(folder, name).glob("life*.log")]
                outcome = f"NOT exact: {type(error).__name__}: {error}\n{''.join(logs[-1:])}"
            print(f"{name}: {outcome} ({time.monotonic() - began_s:.0f} s)", flush=True)
    print(f"{where}: {f'NOT exact: {wrong}' if wrong else 'exact'}")
    return 1 if wrong else 0
