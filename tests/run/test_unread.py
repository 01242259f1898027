"""``exactum run`` whose lines nobody takes: a reader that is gone or has stopped reading, a disk
that is full. The script is kept running all the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.environment import environment
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.slow

AT_ONCE = ["--restart-delay", "10 ms"]
DIES_ONCE = """
import os, sys
from pathlib import Path
with open("lives", "a") as lives:
    lives.write("x")
sys.exit(Path("lives").read_text() == "x")
"""
WAITS = """
import time
import exactum
from pathlib import Path
Path("lives").write_text("x")
time.sleep(400)
"""


def full() -> int:
    """The writing end of a pipe that takes nothing more. Its reading end stays open."""
    _, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(1 << 12))
    except BlockingIOError:
        os.set_blocking(writer, True)
    return writer


def gone() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


STREAMS = {
    "gone": gone,
    "does not read": full,
    "disk full": lambda: os.open("/dev/full", os.O_WRONLY),
}


@contextmanager
def started(folder: Path, program: str, stream: int) -> Iterator[subprocess.Popen[bytes]]:
    script = folder / "app.py"
    script.write_text(program)
    command = [sys.executable, "-m", "exactum.ops.cli", "run", str(script), *AT_ONCE]
    with subprocess.Popen(
        [*command, "--listen", "none"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stream,
        cwd=folder,
        env=environment(),
        start_new_session=True,
    ) as run:
        os.close(stream)
        try:
            yield run
        finally:
            run.kill()


@pytest.mark.variants(1)
@pytest.mark.parametrize("reader", STREAMS)
def test_a_script_that_dies_is_started_again(tmp_path: Path, reader: str) -> None:
    """Whatever becomes of the lines that say so."""
    with started(tmp_path, DIES_ONCE, STREAMS[reader]()) as run:
        assert run.wait(WAIT_MAX_S) == 0
    assert (tmp_path / "lives").read_text() == "xx"


def test_a_stop_is_heard_though_nobody_reads(tmp_path: Path) -> None:
    """SIGTERM ends it as ever."""
    with started(tmp_path, WAITS, full()) as run:
        await_true((tmp_path / "lives").exists, "the script runs")
        run.send_signal(signal.SIGTERM)
        assert run.wait(WAIT_MAX_S) == 0


def test_a_reader_that_reads_again_is_told_what_is_missing(tmp_path: Path) -> None:
    """Lines beyond a bound are not kept for it."""
    reader, writer = os.pipe()
    program = """
import sys
from exactum.ops.run import run_display
run_display.LINES_MAX = 10
with run_display.RunDisplay() as view:
    for number in range(5_000):
        view.say(f"line {number} " + "x" * 100)
    print("said", flush=True)
    sys.stdin.read()
    view.say("and one more")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writer,
        env=environment(),
    ) as run:
        os.close(writer)
        assert run.stdout is not None and run.stdin is not None
        assert run.stdout.readline() == b"said\n", "it does not wait for the reader"
        shown = os.read(reader, 1 << 20)
        run.stdin.close()
        with os.fdopen(reader, "rb") as rest:
            lines = (shown + rest.read()).decode().splitlines()
        assert run.wait(WAIT_MAX_S) == 0
    assert lines[0].endswith("line 0 " + "x" * 100)
    missing = [line for line in lines if "are missing here: nobody read them" in line]
    lost = sum(int(line.split()[3]) for line in missing)
    assert lost > 0, "and it is told of at the end, too"
    assert lost + len(lines) - len(missing) == 5_001
