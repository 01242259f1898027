"""Follows docs/coming-from/spark-kafka-sink.md and nothing else: ``make from-duplicates``.

Types what the page says into as many terminals as it says, and saves its programs: a Spark job that
is killed and has duplicates, then the same job changed as the page says, killed in the same way. In
the end a reader that knows nothing of exactum judges both. Prints how long each step took.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from exactum.local.broker import choose_ports
from tests.kit.docs.newcomer import Newcomer
from tests.kit.docs.onlooker import keys_and_values
from tests.kit.docs.steps import PageStep, steps
from tests.kit.environment import ROOT

PAGE = ROOT / "docs" / "coming-from" / "spark-kafka-sink.md"
KAFKA = "exactum local kafka --port 9092 --topic orders --topic shouted --topic beside"
LASTING = (KAFKA, "python before.py", "python after.py")
OLD_JOB = 600_000
"""Orders below this number were shouted by Spark's own sink."""
SENT = 1_300_000


def follow(environment: Path, folder: Path) -> None:
    """Follow the page, then judge."""
    port = choose_ports(1, 0)[0].clients
    kept = ("HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "EXACTUM_CACHE", "EXACTUM_IVY_SETTINGS")
    env = {name: os.environ[name] for name in ("PATH", *kept) if name in os.environ}
    env["PYTHONUNBUFFERED"] = "1"
    newcomer = Newcomer(folder, env, port, LASTING)
    newcomer.activate(environment)
    try:
        for step in steps(PAGE):
            done(newcomer, step)
        judge(f"127.0.0.1:{port}")
    finally:
        for terminal in reversed(newcomer.terminals):
            terminal.close()


def done(newcomer: Newcomer, step: PageStep) -> None:
    began_s = time.monotonic()
    newcomer.follow(step)
    what = "; ".join(step.commands) or f"save {step.saved[0] if step.saved else ''}"
    print(f"{time.monotonic() - began_s:6.1f} s  {what}", flush=True)


def judge(servers: str) -> None:
    """Spark's own sink has duplicates. exactum has none, and neither has lost an order."""
    sent = Counter((key, value.upper()) for key, value in keys_and_values(servers, "orders"))
    assert sent.total() == SENT, sent.total()
    found = Counter(keys_and_values(servers, "shouted"))
    assert sent - found == Counter(), f"lost: {(sent - found).total()}"
    twice = Counter(number(value) < OLD_JOB for _, value in (found - sent).elements())
    print(f"written twice: {twice[True]} by Spark's own sink, {twice[False]} after the change")
    assert twice[True] > 0, "the old job has no duplicates: nothing is shown"
    assert twice[False] == 0, twice


def number(value: bytes) -> int:
    return int(value.split()[1])


def main(given: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--environment", type=Path, default=ROOT / ".venv", help="a virtual one, with exactum"
    )
    arguments = parser.parse_args(given)
    folder = Path(tempfile.mkdtemp(prefix="exactum-from-duplicates-"))
    began_s = time.monotonic()
    try:
        follow(arguments.environment.resolve(), folder)
    except BaseException:
        print(f"what was printed is in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(f"{time.monotonic() - began_s:6.1f} s in all")


if __name__ == "__main__":
    main(sys.argv[1:])
