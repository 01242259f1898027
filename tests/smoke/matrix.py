"""The crash job on each version that is supported, once, and the table of what was run.

``make matrix`` runs every row; ``python -m tests.smoke.matrix --only kafka-3.6`` one of them, and
``--list`` prints the names as JSON. ``--versions 3.12 4.1.4 3.9`` runs any others, which are kept in
no table: the workflow asks for the product of all. Each Python has an environment of its own below
``.cache/matrix``, into which the built wheel is installed.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kit.environment import ROOT

PAGE = ROOT / "docs" / "reference" / "what-was-run.md"
RESULTS = ROOT / "bench" / "results" / "versions.jsonl"
ENVIRONMENTS = ROOT / ".played" / "matrix"
BLOCK = re.compile(r"(<!-- results: made by make matrix -->\n).*?(<!-- end -->)", re.S)
TIMEOUT_S = 900
NEWEST_KAFKA = "4.3"


@dataclass(frozen=True)
class Row:
    """One run: a Python, a PySpark, the line of a broker, a major version of PostgreSQL or none."""

    name: str
    python: str = "3.11"
    pyspark: str = "4.2.0"
    kafka: str = NEWEST_KAFKA
    postgres: str = ""


ROWS = [
    Row("python-3.10", "3.10", "4.0.1"),
    Row("python-3.12", "3.12", "4.1.4"),
    Row("python-3.13", "3.13", "4.2.1"),
    Row("python-3.14", "3.14", "4.2.1"),
    Row("kafka-3.6", kafka="3.6", postgres="13"),
    Row("kafka-3.7", kafka="3.7", postgres="14"),
    Row("kafka-3.8", kafka="3.8", postgres="15"),
    Row("kafka-3.9", kafka="3.9", postgres="16"),
    Row("kafka-4.0", kafka="4.0", postgres="17"),
    Row("kafka-4.1", kafka="4.1", postgres="18"),
    Row("kafka-4.2", kafka="4.2"),
    Row("kafka-4.3", kafka="4.3"),
]


@dataclass(frozen=True)
class Outcome:
    """What a row gave, on a day; ``failure`` is empty where everything was exact, ``untried`` says
    why nothing ran.
    """

    name: str
    day: str
    python: str = ""
    pyspark: str = ""
    kafka: str = ""
    postgres: str = ""
    failure: str = ""
    untried: str = ""

    def line(self) -> str:
        """As a row of the page's table."""
        what = self.untried or (f"FAILED: {self.failure}" if self.failure else "exact")
        versions = (self.python, self.pyspark, self.kafka, self.postgres or "-")
        return f"| {' | '.join(versions)} | {what} | {self.day} |"


def interpreter(version: str) -> str | None:
    """The program of a Python: on the PATH, or pyenv's."""
    kept = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")))
    for program in filter(None, [shutil.which(f"python{version}"), *kept]):
        asked = subprocess.run([program, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False)  # fmt: skip
        if asked.stdout.startswith(f"{version}."):  # pyenv puts programs on the PATH that refuse
            return program
    return None


def environment_of(row: Row, program: str, wheel: Path) -> Path:
    """The interpreter of an environment with this wheel and the row's PySpark."""
    folder = ENVIRONMENTS / f"python{row.python}-spark{row.pyspark}"
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not python.exists():
        subprocess.run([program, "-m", "venv", str(folder)], check=True)
    asked = [f"pyspark=={row.pyspark}", f"{wheel}[spark,postgres]"]
    subprocess.run([*pip, *asked], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return python


def run(row: Row, wheel: Path) -> Outcome:
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    wanted = {"python": row.python, "pyspark": row.pyspark, "kafka": row.kafka}
    program = interpreter(row.python)
    if program is None:
        return Outcome(row.name, day, **wanted, untried="not tried: no such Python there")
    python = environment_of(row, program, wheel)
    command = [str(python), "-m", "tests.smoke.crash", "--kafka", row.kafka]
    command += ["--postgres", row.postgres] if row.postgres else []
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # the wheel is tested, not the sources
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return Outcome(row.name, day, **wanted, failure=f"it ended with {done.returncode}")
    return Outcome(row.name, day, **json.loads(lines[-1]))


def kept() -> dict[str, Outcome]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {outcome.name: outcome for outcome in (Outcome(**json.loads(line)) for line in lines)}


def table(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield "| Python | PySpark | Kafka | PostgreSQL | result | day |"
    yield "|---|---|---|---|---|---|"
    for row in ROWS:
        if row.name in outcomes:
            yield outcomes[row.name].line()


def write(outcomes: dict[str, Outcome]) -> None:
    RESULTS.write_text(
        "".join(json.dumps(asdict(outcomes[r.name])) + "\n" for r in ROWS if r.name in outcomes)
    )
    PAGE.write_text(page(PAGE.read_text(), outcomes))


def page(text: str, outcomes: dict[str, Outcome]) -> str:
    """The page's text with this table."""
    made = "\n".join(table(outcomes))
    return BLOCK.sub(lambda match: f"{match[1]}\n{made}\n\n{match[2]}", text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--only", nargs="*", default=[row.name for row in ROWS])
    versions = ("PYTHON", "PYSPARK", "KAFKA")
    parser.add_argument("--versions", nargs=3, metavar=versions, help="these, and no row")
    given = parser.parse_args()
    if given.list:
        print(json.dumps([row.name for row in ROWS]))
        return
    (wheel,) = (ROOT / "dist").glob("*.whl")
    if given.versions:
        outcome = run(Row("asked for", *given.versions), wheel)
        print(outcome.line(), flush=True)
        sys.exit(outcome.failure or outcome.untried or 0)
    outcomes, failed = kept(), []
    for row in ROWS:
        if row.name not in given.only:
            continue
        outcomes[row.name] = outcome = run(row, wheel)
        print(f"{row.name}: {outcome.line()}", flush=True)
        failed += [row.name] if outcome.failure else []
        write(outcomes)
    sys.exit(f"not exact: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
