"""The page as people start it, and in trouble: it says so, and neither it nor the query stops."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum.checkpoint.layout import DECISIONS, HISTORY
from exactum.monitor import job_sources
from exactum.monitor.http_server import HttpServer
from exactum.monitor.job_sources import CheckpointJobs
from exactum.ops.cli import main
from exactum.ops.dashboard.routes import dashboard_routes
from tests.kit.dashboard.checkpoints import busy_hour
from tests.kit.environment import environment
from tests.kit.monitor.facts import Story
from tests.kit.monitor.made_checkpoint import Checkpoint, ago
from tests.kit.query_record import damage, newest
from tests.kit.waiting import WAIT_MAX_S


@pytest.fixture
def made(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "c")


@pytest.fixture
def server(made: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """The page of one checkpoint, which reads again each time that it is asked."""
    monkeypatch.setattr(job_sources, "FRESH_S", 0.0)
    server = HttpServer(dashboard_routes(CheckpointJobs([made.folder])))
    yield server
    server.close()


def page(server: HttpServer, path: str) -> str:
    with urllib.request.urlopen(server.url + path, timeout=WAIT_MAX_S) as response:
        return str(response.read().decode())


def test_a_browser_that_goes_away_in_mid_answer(made: Checkpoint, server: HttpServer) -> None:
    """Reset after the first bytes, and one that sends half a request: the next one is answered."""
    busy_hour(made)
    whole = f"GET /job/{made.query_id}?all=1 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode()
    for request in [whole] * 2 + [whole[:30]] * 2:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            browser.sendall(request)
            if request == whole:
                assert browser.recv(10)
    assert "orders" in page(server, "/")


def test_history_and_checkpoint_go_away(made: Checkpoint, server: HttpServer) -> None:
    """What was read stays, with a line that says so; what is there again is shown."""
    made.tells(ago(9).starts().after(1).completes(41))
    path = f"/job/{made.query_id}"
    assert "The history" not in page(server, path)
    shutil.rmtree(made.folder / HISTORY)
    gone = page(server, path)
    assert f"The history {made.folder / HISTORY} is gone" in gone
    assert 'id="b-41-' in gone
    aside = made.folder.with_name("aside")
    made.folder.rename(aside)
    gone = page(server, path)
    assert "is not a folder" in gone
    assert 'id="b-41-' in gone
    aside.rename(made.folder)
    made.tells(ago(7).completes(42))
    assert 'id="b-42-' in page(server, path)


def test_a_checkpoint_without_a_history(made: Checkpoint, server: HttpServer) -> None:
    """The history is switched off: that is said, and what is decided and not finished is shown."""
    made.commit(7).spark(7, 6).tells(Story())
    text = page(server, f"/job/{made.query_id}")
    assert "spark.exactum.history.enabled" in text and ">IN DOUBT<" in text


def test_damaged_files(made: Checkpoint, server: HttpServer) -> None:
    """Spark's files, decisions, run files and the list of sinks: each is named where it is shown."""
    made.tells(ago(9).starts().after(1).completes(3)).spark(4, 3).commit(4)
    (record,) = (made.folder / DECISIONS).glob("*4-0.json")
    record.write_text('{"version": 1')
    (made.folder / "offsets" / "4").write_text("v1")
    (made.folder / "exactum" / "runs" / "x.json").write_text("{")
    damage(made.folder)
    assert "query/0.json cannot be read" in page(server, f"/job/{made.query_id}")
    newest(made.folder).unlink()
    assert record.name in page(server, f"/job/{made.query_id}")
    (made.folder / "metadata").write_text("{")
    assert "cannot be read" in page(server, f"/job/{made.query_id}")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "exactum.ops.cli", "dashboard", *arguments]


@pytest.mark.slow
def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    """Where the port is taken the next one; two checkpoints of one query are two queries."""
    one = Checkpoint(tmp_path / "orders").tells(Story(1).starts())
    other = Checkpoint(tmp_path / "copy")
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
