"""``exactum dashboard`` as people start it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum.ops.cli import main
from tests.kit.dashboard.checkpoints import MadeCheckpoint
from tests.kit.environment import environment
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "exactum.ops.cli", "dashboard", *arguments]


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    """Where the port is taken the next one; two checkpoints of one query are two queries."""
    one = MadeCheckpoint(tmp_path / "orders").begin()
    other = MadeCheckpoint(tmp_path / "copy").begin()
    one.write([one.started(1)])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["--checkpoint", str(one.folder), "--checkpoint", str(other.folder)]
        with subprocess.Popen(
            command(*arguments, "--port", str(port)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        ) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)$", said.strip())
            assert found is not None, said + process.stdout.read()
            assert port < int(found[1]) <= port + 16
            with urllib.request.urlopen(found[0], timeout=WAIT_MAX_S) as response:
                text = response.read().decode()
            assert one.query_id in text and "/job/checkpoint-2" in text
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_MAX_S) == 0
            assert "Traceback" not in process.stdout.read()


def test_a_checkpoint_that_is_none_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["dashboard", "--checkpoint", str(tmp_path / "nowhere")])
    assert (done.exit_code, "is not a folder" in done.stderr) == (2, True)
