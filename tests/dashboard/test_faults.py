"""The page in trouble: it says so, and neither it nor the query stops."""

from __future__ import annotations

import shutil
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.checkpoint.layout import DECISIONS, HISTORY
from exactum.monitor import job_sources
from exactum.monitor.history import HistoryWriter
from exactum.monitor.http_server import HttpServer
from exactum.monitor.job_sources import CheckpointJobs
from exactum.ops.dashboard.routes import dashboard_routes
from exactum.protocol.model import Decision
from exactum.storage.folder import Folder
from tests.kit.dashboard.checkpoints import MadeCheckpoint, busy_hour
from tests.kit.query_record import damage, newest
from tests.kit.small_disk import small_disk
from tests.kit.waiting import WAIT_MAX_S

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def made(tmp_path: Path) -> MadeCheckpoint:
    return MadeCheckpoint(tmp_path / "c").begin()


@pytest.fixture
def server(made: MadeCheckpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """The page of one checkpoint, which reads again each time that it is asked."""
    monkeypatch.setattr(job_sources, "FRESH_S", 0.0)
    server = HttpServer(dashboard_routes(CheckpointJobs([made.folder])))
    yield server
    server.close()


def page(server: HttpServer, path: str) -> str:
    with urllib.request.urlopen(server.url + path, timeout=WAIT_MAX_S) as response:
        return str(response.read().decode())


def test_a_browser_that_goes_away_in_mid_answer(made: MadeCheckpoint, server: HttpServer) -> None:
    """Reset after the first bytes, and one that sends half a request: the next one is answered."""
    busy_hour(made)
    whole = f"GET /job/{made.query_id}?all=1 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode()
    for request in [whole] * 6 + [whole[:30]] * 5:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            browser.sendall(request)
            if request == whole:
                assert browser.recv(10)
    assert made.name in page(server, "/")


def test_history_and_checkpoint_go_away(made: MadeCheckpoint, server: HttpServer) -> None:
    """What was read stays, with a line that says so; what is there again is shown."""
    made.write([made.started(NOW_MS - 9_000), made.completed(NOW_MS - 8_000, 41)])
    path = f"/job/{made.query_id}"
    assert "The history" not in page(server, path)
    shutil.rmtree(made.folder / HISTORY)
    gone = page(server, path)
    assert f"The history {made.folder / HISTORY} is gone" in gone
    assert f"{path}/batch/41" in gone
    aside = made.folder.with_name("aside")
    made.folder.rename(aside)
    gone = page(server, path)
    assert "is not a folder" in gone
    assert f"{path}/batch/41" in gone
    aside.rename(made.folder)
    made.write([made.completed(NOW_MS - 7_000, 42)])
    assert f"{path}/batch/42" in page(server, path)


def test_a_checkpoint_without_a_history(made: MadeCheckpoint, server: HttpServer) -> None:
    """The history is switched off: decisions are shown all the same."""
    made.decide(7, 0)
    made.spark(7, 7)
    text = page(server, f"/job/{made.query_id}")
    assert "spark.exactum.history.enabled" in text
    text = page(server, f"/job/{made.query_id}/batch/7")
    assert "exactum-3f2a-7-0" in text
    assert ">stands<" in text


def test_damaged_files(made: MadeCheckpoint, server: HttpServer) -> None:
    """Spark's files, decisions, run files and the list of sinks: each is named where it is shown."""
    made.write([made.started(NOW_MS - 9_000), made.completed(NOW_MS - 8_000, 3)])
    made.spark(4, 3)
    made.decide(4, 0)
    (record,) = (made.folder / DECISIONS).glob("*4-0.json")
    record.write_text('{"version": 1')
    (made.folder / "offsets" / "4").write_text("v1")
    (made.folder / "exactum" / "runs").mkdir()
    (made.folder / "exactum" / "runs" / "x.json").write_text("{")
    damage(made.folder)
    assert "query/0.json cannot be read" in page(server, f"/job/{made.query_id}")
    text = page(server, f"/job/{made.query_id}/batch/4")
    assert record.name in text or "query/0.json cannot be read" in text
    newest(made.folder).unlink()
    text = page(server, f"/job/{made.query_id}/batch/4")
    assert record.name in text and ">not decided<" not in text
    (made.folder / "metadata").write_text("{")
    assert "cannot be read" in page(server, f"/job/{made.query_id}")


@pytest.mark.parametrize(
    ("records", "finished", "word"),
    [
        ([], 4, "not decided"),
        ([Decision.ABORT], 4, "aborted"),
        ([Decision.ABORT, Decision.COMMIT], 4, "decided, not acknowledged"),
        ([Decision.COMMIT], 5, "stands"),
    ],
)
def test_a_batch_in_words(
    made: MadeCheckpoint, server: HttpServer, records: list[Decision], finished: int, word: str
) -> None:
    made.spark(5, finished)
    for attempt, decision in enumerate(records):
        made.decide(5, attempt, decision)
    made.write([made.started(NOW_MS - 90_000)])
    made.died()
    text = page(server, f"/job/{made.query_id}/batch/5")
    assert f">{word}<" in text
    assert "1,125" in text  # the end of each partition
    assert ">IN DOUBT<" in page(server, "/") if "not acknowledged" in word else True
    assert f">{'not begun'}<" in page(server, f"/job/{made.query_id}/batch/6")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small") as place:
        yield place


@pytest.mark.slow
def test_a_full_disk(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history ends in half a line; the page reads on, needs no room itself, and shows what comes
    after. (That the query goes on is tests/monitor's.)
    """
    monkeypatch.setattr(job_sources, "FRESH_S", 0.0)
    made = MadeCheckpoint(disk / "c").begin()
    writer = HistoryWriter(Folder(made.folder))
    filler = disk / "filler"
    at = NOW_MS - 60_000
    writer.write([made.started(at)])
    filler.write_bytes(b"x" * 900_000)
    server = HttpServer(dashboard_routes(CheckpointJobs([made.folder])))
    batch_id = 0

    def write_on() -> None:
        nonlocal batch_id
        while True:
            writer.write([made.completed(at + batch_id, batch_id)])
            batch_id += 1

    try:
        with pytest.raises(OSError, match="No space left"):
            write_on()
        assert f"/batch/{batch_id - 1}" in page(server, f"/job/{made.query_id}")
        filler.unlink()
        for number in (5_000, 5_001):
            writer.write([made.completed(NOW_MS - 3_000, number)])
        text = page(server, f"/job/{made.query_id}")
        assert "/batch/5001" in text
        assert "could not be read" in text
    finally:
        server.close()
