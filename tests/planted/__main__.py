"""Plants each fault in turn and runs the tests that can see it. Resumable: what was played on the
same sources is not played again. Ends with 1 where more than two are not found.

    python -m tests.planted                       all that were not played yet
    python -m tests.planted NAME ...              these, again
    python -m tests.planted --list                their names, rows and files
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.kit.played import FOLDER, ROOT, sources_digest
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

RESULTS = FOLDER / "planted.jsonl"
NOT_FOUND_MAX = 2
TIMEOUT_S = 1_500
"""Of one file or folder: a test that hangs has found the fault."""
FOUND, NOT_FOUND, BROKEN = "found", "not found", "could not be played"


def planted(fault: Fault, folder: Path) -> Path:
    """A copy of ``src`` in ``folder`` with the fault in it."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "exactum" / fault.file
    path.write_text(fault.plant(path.read_text()))
    return copy


def play(fault: Fault, processes: int) -> tuple[str, str]:
    """What came of it, and the test that failed first or why it could not be played. One file or
    folder after the other, as the fault names them: what is cheap most often finds it.
    """
    with tempfile.TemporaryDirectory(prefix="exactum-planted-") as name:
        copy = planted(fault, Path(name))
        for tests in fault.tests:
            outcome, by = play_tests(copy, tests, processes)
            if outcome != NOT_FOUND:
                break
        return outcome, by


def play_tests(copy: Path, tests: str, processes: int) -> tuple[str, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy}:{ROOT}",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        "EXACTUM_SWEEP_EVERY": "5",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not deep", "--tb=line"]
    command += [
        "--timeout",
        "300",
        "-p",
        "no:cacheprovider",
        "--dist",
        "loadfile",
        "--max-worker-restart",
        "0",
    ]
    command += ["-n", str(processes)] if processes > 1 else []
    try:
        ended = subprocess.run(
            [*command, *tests.split()],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FOUND, f"{tests} did not end within {TIMEOUT_S} s"
    lines = ended.stdout.splitlines()
    if ended.returncode == 0:
        return NOT_FOUND, lines[-1] if lines else ""
    failed = [line for line in lines if line.startswith("FAILED")]
    if ended.returncode in (1, 2) and failed:  # xdist ends with 2 where -x stopped it
        return FOUND, failed[0]
    # A server or a session that does not start has found nothing.
    errors = [line for line in lines if line.startswith("ERROR")]
    texts = errors[:1] or lines or ended.stderr.splitlines() or ["pytest printed nothing"]
    return BROKEN, texts[-1]


def results(digest: str) -> dict[str, dict[str, str]]:
    """What was played on these sources, by the fault's name."""
    if not RESULTS.exists():
        return {}
    played = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {one["fault"]: one for one in played if one["sources"] == digest}


def table(played: dict[str, dict[str, str]]) -> str:
    """One line for each fault: what came of it, its name, the row of the guarantees."""
    width = max(len(fault.name) for fault in FAULTS)
    lines = []
    for fault in FAULTS:
        one = played.get(fault.name)
        outcome = one["outcome"] if one else "not played"
        lines.append(f"{outcome:20} {fault.name:{width}}  {fault.row}")
        if one and one["outcome"] == BROKEN:
            lines.append(f"{'':20} {one['by']}")
    return "\n".join(lines)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Say which there are, and play none.")
@click.option("--processes", default=2, show_default=True, help="Test processes at a time.")
def main(names: tuple[str, ...], only_list: bool, processes: int) -> None:
    """Plant faults, and see whether the tests find them."""
    digest = sources_digest()
    played = results(digest)
    if unknown := set(names) - {fault.name for fault in FAULTS}:
        raise click.UsageError(f"no such fault: {', '.join(sorted(unknown))} (see --list)")
    chosen = [f for f in FAULTS if f.name in names or (not names and f.name not in played)]
    if not only_list:
        RESULTS.parent.mkdir(exist_ok=True)
        for number, fault in enumerate(chosen, start=1):
            begin_s = time.monotonic()
            outcome, by = play(fault, processes)
            took_s = time.monotonic() - begin_s
            click.echo(
                f"{number}/{len(chosen)} {outcome:9} {fault.name} ({took_s:.0f} s) {by[:120]}"
            )
            one = {"sources": digest, "fault": fault.name, "outcome": outcome, "by": by}
            one["seconds"] = f"{took_s:.0f}"
            with RESULTS.open("a") as file:
                file.write(json.dumps(one) + "\n")
            played[fault.name] = one
    click.echo(table(played))
    left = [fault.name for fault in FAULTS if played.get(fault.name, {}).get("outcome") != FOUND]
    click.echo(f"{len(FAULTS) - len(left)} of {len(FAULTS)} planted faults are found")
    if not only_list and len(left) > NOT_FOUND_MAX:
        sys.exit(1)


if __name__ == "__main__":
    main()
