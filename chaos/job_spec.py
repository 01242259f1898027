"""What a driver process is asked to run: one query, with the faults that are planned for it. Plain
values only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PLAIN = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""What Spark calls an exception of Python code on the driver."""
SPARKS = ("Py4JJavaError", "SparkException", "pyspark.errors")
"""In its text, where it came out of a Spark job: a task of Spark's own failed."""
MAX_OFFSETS = 20
"""Transfers in an epoch, over all partitions."""


@dataclass(frozen=True)
class JobSpec:
    """One start of a query over transfers.

    ``sinks`` are keyword arguments by kind (``kafka``, ``postgres``, ``mysql``, ``files``).
    ``folder`` takes the result; a file ``stop`` in it stops a query that is not to end by itself
    (``drain`` false). ``faults`` are those of ``tests/crash/deaths.py``, and ``reading``: the id of
    the first transfer of the epoch in which a task is held before it has written anything. ``log``:
    URL of a database for the decisions. ``stateful``: each posting counts once, however often its
    transfer is in the input. ``chained``: the input is another query's output.
    """

    folder: str
    checkpoint: str
    source: str
    bootstrap_servers: str
    sinks: Mapping[str, Mapping[str, Any]]
    group_id: str = ""
    log: str = ""
    stateful: bool = False
    chained: bool = False
    drain: bool = True
    max_offsets: int = MAX_OFFSETS
    reading: int = -1
    faults: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def give(self, inbox: Path, number: int) -> None:
        """Put it where the driver process looks for its next spec."""
        self.path.mkdir(parents=True)
        appear(inbox / f"{number}.json", asdict(self))

    @property
    def reached(self) -> bool:
        return (self.path / "reached").exists()

    def let_go(self) -> None:
        (self.path / "go").touch()

    def stop(self) -> None:
        (self.path / "stop").touch()

    @property
    def result(self) -> Result | None:
        """How it ended, if it has."""
        path = self.path / "result"
        return Result(**json.loads(path.read_text())) if path.exists() else None


@dataclass(frozen=True)
class Result:
    """``outcome``: finished, stopped or failed; then ``error`` is exactum's error by name, empty if
    it was another.
    """

    outcome: str
    error: str = ""
    message: str = ""

    @property
    def kind(self) -> str:
        """Whose error it was: exactum's by its name, ``Spark``, or ``Python``: a plain exception
        out of foreachBatch, which is a defect of exactum, or of the harness."""
        by_spark = PLAIN not in self.message or any(word in self.message for word in SPARKS)
        return self.error or ("Spark" if by_spark else "Python")

    def leave(self, spec: JobSpec) -> None:
        appear(spec.path / "result", asdict(self))


def appear(path: Path, content: Mapping[str, Any]) -> None:
    """Create a file that nobody sees half written."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.write_text(json.dumps(content))
    hidden.rename(path)
