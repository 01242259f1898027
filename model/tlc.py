"""Run TLC on the checks, and compare its answers with what must come out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from exactum.java.program import SMALL_OPTIONS, java_program
from model.checks import LARGE, SMALL, Check
from model.tla2tools import tla2tools_jar

FOLDER = Path(__file__).parent / "tla"
SMALL_TIMEOUT_S = 600
LARGE_TIMEOUT_S = 6 * 3600
OUTPUT_LINES_SHOWN = 40
HEAP_SMALL, HEAP_LARGE = "512m", "4g"

_COUNTS = re.compile(
    r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left", re.MULTILINE
)
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_INVARIANT = re.compile(r"Invariant (\w+) is violated")
_STATE = re.compile(r"^State \d+: <", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What TLC said. ``broken`` is a promise, and so many ``steps`` lead there; it is empty where
    all of them hold.
    """

    check: Check
    generated: int
    distinct: int
    depth: int
    broken: str
    steps: int
    took_s: float
    output: str

    @property
    def as_expected(self) -> bool:
        return self.distinct > 0 and self.broken == self.check.broken


def run(console: Console, *, large: bool, only: str | None = None) -> bool:
    """Run the small checks, or the large ones, and print a table. True if every answer is as it
    must be.
    """
    checks = (
        [c for c in (*SMALL, *LARGE) if only == c.name] if only else list(LARGE if large else SMALL)
    )
    if not checks:
        names = ", ".join(c.name for c in (*SMALL, *LARGE))
        console.print(f"There is no check {only}. There are: {names}.")
        return False
    began_s = time.monotonic()
    answers = ask(checks, large=large)
    console.print(_table(answers))
    for answer in answers:
        if not answer.as_expected:
            console.print(
                f"NOT AS IT MUST BE: {answer.check.name}\n{_tail(answer.output)}", markup=False
            )
        elif only and answer.broken:
            console.print(answer.output, markup=False, highlight=False)
    good = all(a.as_expected for a in answers)
    took_s = time.monotonic() - began_s
    console.print(
        f"{len(answers)} checks in {took_s:.0f} s: "
        f"{'all as they must be' if good else 'SOMETHING IS OFF'}."
    )
    return good


def ask(checks: Sequence[Check], *, large: bool = False) -> list[Answer]:
    """TLC's answers: two checks at a time with one worker each, or one after another with all
    cores.
    """
    jar, cores = tla2tools_jar(), os.cpu_count() or 1
    with ThreadPoolExecutor(1 if large else max(2, cores)) as pool:
        return list(pool.map(lambda check: _ask(jar, check, cores if large else 1, large), checks))


def _ask(jar: Path, check: Check, workers: int, large: bool) -> Answer:
    began_s = time.monotonic()
    quick = [*SMALL_OPTIONS, "-Xshare:auto", f"-Xmx{HEAP_SMALL}"]
    long = ["-XX:+UseParallelGC", f"-Xmx{HEAP_LARGE}"]
    with tempfile.TemporaryDirectory(prefix="exactum-tlc-") as work:
        # TLC looks for the configuration beside the module, and leaves files there.
        shutil.copy(FOLDER / f"{check.module}.tla", work)
        (Path(work) / "check.cfg").write_text(config_of(check))
        command = [
            *(java_program("java"), *(long if large else quick)),
            f"-Djava.io.tmpdir={work}",  # it unpacks its standard modules there
            *("-cp", str(jar), "tlc2.TLC"),
            "-deadlock",  # a run that has come to its end is no deadlock
            *("-workers", str(workers), "-metadir", f"{work}/states", "-config", "check.cfg"),
            f"{check.module}.tla",
        ]
        limit_s = LARGE_TIMEOUT_S if large else SMALL_TIMEOUT_S
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_s, cwd=work
        )
    return read_answer(check, done.stdout + done.stderr, time.monotonic() - began_s)


def config_of(check: Check) -> str:
    """The .cfg of the check. Where a temporal property must break it is the only one: TLC does not
    say which broke.
    """
    text = (FOLDER / f"{check.config}.cfg").read_text()
    head, _, promises = text.partition("INVARIANTS")
    if 'Mutation = "none"' not in head or (check.broken and check.broken not in promises):
        raise ValueError(f"{check.config}.cfg has no Mutation, or not the promise {check.broken}")
    head = head.replace('Mutation = "none"', f'Mutation = "{check.mutation}"')
    _, temporal, properties = promises.partition("PROPERTIES")
    if check.broken and temporal:
        if check.broken not in properties:
            raise ValueError(f"{check.name}: {check.broken} is not a temporal property")
        return f"{head}PROPERTIES {check.broken}\n"
    return f"{head}INVARIANTS{promises}"


def read_answer(check: Check, output: str, took_s: float) -> Answer:
    """What TLC's output says. Anything but "no error" and a broken promise counts as no answer (no
    states).
    """
    counts, depth = _COUNTS.findall(output), _DEPTH.search(output)
    invariant = _INVARIANT.search(output)
    if invariant:
        broken = invariant[1]
    elif "Temporal properties were violated" in output:
        broken = check.broken if check.mutation != "none" else "a temporal property"
    else:
        broken = ""
    answered = counts and (broken or "No error has been found" in output)
    generated, distinct = (int(counts[-1][0]), int(counts[-1][1])) if answered else (0, 0)
    steps = max(len(_STATE.findall(output)) - 1, 0)
    return Answer(
        check, generated, distinct, int(depth[1]) if depth else 0, broken, steps, took_s, output
    )


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-OUTPUT_LINES_SHOWN:])


def _table(answers: Sequence[Answer]) -> Table:
    table = Table("model", "states", "distinct", "depth", "answer", "seconds")
    for column in (*table.columns[1:4], table.columns[5]):
        column.justify = "right"
    for a in answers:
        if a.broken:
            answer = f"caught by {a.broken} in {a.steps} steps"
        else:
            answer = f"{_promises(a.check)} promises hold" if a.distinct else "NO ANSWER"
        mark = "" if a.as_expected else "[red]"
        name = f"  {a.check.name}" if a.check.broken else a.check.name
        table.add_row(
            mark + name,
            f"{a.generated:,}",
            f"{a.distinct:,}",
            f"{a.depth:,}",
            answer,
            f"{a.took_s:.0f}",
        )
    return table


def _promises(check: Check) -> int:
    text = config_of(check).partition("INVARIANTS")[2]
    return len([w for w in text.split() if w != "PROPERTIES"])
