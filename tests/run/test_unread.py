"""``exactum run`` whose lines nobody takes: a reader that is gone or has stopped reading, a disk that is
full. The script is kept running all the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from exactum.ops.run.run_display import RunDisplay
from tests.kit.environment import environment
from tests.kit.waiting import WAIT_MAX_S

DIES_ONCE = """
import sys
from pathlib import Path
with open("lives", "a") as lives:
    lives.write("x")
sys.exit(Path("lives").read_text() == "x")
"""


def full() -> tuple[int, int]:
    """A pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(1 << 12))
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def gone() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


STREAMS: dict[str, Callable[[], int]] = {
    "gone": gone,
    "does not read": lambda: full()[1],
    "disk full": lambda: os.open("/dev/full", os.O_WRONLY),
}


@pytest.mark.slow
@pytest.mark.variants(1)
@pytest.mark.parametrize("reader", STREAMS)
def test_a_script_that_dies_is_started_again(tmp_path: Path, reader: str) -> None:
    """Whatever becomes of the lines that say so."""
    (tmp_path / "app.py").write_text(DIES_ONCE)
    command = [sys.executable, "-m", "exactum.ops.cli", "run", "app.py", "--listen", "none"]
    done = subprocess.run(
        [*command, "--restart-delay", "10 ms"],
        check=True,
        stdin=subprocess.DEVNULL,
        stderr=STREAMS[reader](),
        cwd=tmp_path,
        env=environment(),
        timeout=WAIT_MAX_S,
    )
    assert (done.returncode, (tmp_path / "lives").read_text()) == (0, "xx")


def test_a_reader_that_reads_again_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that nobody took are not kept, and are not waited for one by one."""
    reader, writer = full()
    monkeypatch.setattr(sys, "__stderr__", SimpleNamespace(fileno=lambda: writer, encoding="ascii"))
    began_s = time.monotonic()
    with RunDisplay() as view:
        for number in range(1_000):
            view.say(f"line {number}")
        assert time.monotonic() - began_s < 5
        os.set_blocking(reader, False)
        with suppress(BlockingIOError):
            while os.read(reader, 1 << 16):
                pass
        view.say("\u00e4")
    said = os.read(reader, 1 << 16).decode("ascii").splitlines()
    assert [line.partition("exactum run: ")[2] for line in said] == [
        "1000 lines are missing here: nobody read them",
        "\\xe4",
    ]
