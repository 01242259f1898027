"""The contract of a decision log, kept in each kind of place: a folder, object stores, databases. And
what becomes of records that are missing, damaged, copied, pruned or raced for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, MemoryStore

from exactum.errors import CheckpointRefused, Fenced, InvariantBroken
from exactum.files.slot_log import LOG_ID, SlotLog
from exactum.protocol.model import Decision
from exactum.storage.folder import Folder
from exactum.storage.objects import ObjectStore
from exactum.storage.storage import SmallFiles
from exactum.testing import LogContract
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.errors import raised
from tests.kit.sql import mysql_server, postgres_server

pytestmark = pytest.mark.slow

KINDS = [
    "folder",
    "objects",
    "objects-on-disk",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]
Place = Callable[[str], SmallFiles]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, memory: Path) -> Iterator[Place]:
    """Where the files of a query's log are, not made yet: another connection at each call."""
    kind, store = request.param, MemoryStore()
    with ExitStack() as stack:
        if kind in ("postgres", "mariadb"):
            databases: Any = (
                postgres_server.Database.cleaned
                if kind == "postgres"
                else mysql_server.Database.made
            )
            database = stack.enter_context(databases(request.getfixturevalue(kind)))

            def files(query_id: str) -> SmallFiles:
                made: SmallFiles = database.files(query_id, timeout_s=5.0)
                stack.callback(made.close)
                return made

            yield files
        elif kind == "folder":
            yield lambda query_id: Folder(memory / "not" / "yet" / "there")
        else:
            there: Any = store if kind == "objects" else LocalStore(memory)
            yield lambda query_id: ObjectStore.of("memory://log", there).below("decisions")


def log_in(place: Place, query_id: str = QUERY_ID) -> SlotLog:
    return SlotLog(place(query_id), query_id, prune_every=1)


def named(batch_id: int, attempt: int = 0) -> str:
    return f"{batch_id:020d}-{attempt}.json"


class TestLog(LogContract):
    @pytest.fixture(autouse=True)
    def _in(self, place: Place) -> None:
        self.place = place

    def open_log(self, query_id: str) -> SlotLog:
        return log_in(self.place, query_id)


def test_a_record_is_readable_by_a_person(place: Place) -> None:
    """One file, named by batch and attempt, of indented JSON; and one that says which log it is."""
    log_in(place).decide(record(42))
    files = place(QUERY_ID)
    assert sorted(files.names()) == [named(42), LOG_ID]
    text = (files.read(named(42)) or b"").decode()
    assert json.loads(text)["decision"] == "commit"
    assert text.startswith('{\n  "version"')


def test_a_damaged_record_stops_the_query(place: Place) -> None:
    """A record that cannot be read is never taken for an absent one."""
    log, files = log_in(place), place(QUERY_ID)
    files.open()
    no_text = b"\\xff" if hasattr(files, "_session") else b"\xff"  # a column of text holds no other
    for content in (b"", b"{", b"[]", b'{"version": 1}', no_text):
        files.put(named(1), content)
        with raised(InvariantBroken, named(1)):
            log.read(1)
        with raised(InvariantBroken, named(1)):
            log.decide(record(1))


def test_a_record_of_a_newer_version_is_refused(place: Place) -> None:
    """A newer format is not guessed at."""
    log, files = log_in(place), place(QUERY_ID)
    log.decide(record(1))
    text = files.read(named(1)) or b""
    files.put(named(1), text.replace(b'"version": 1', b'"version": 2'))
    with raised(CheckpointRefused, "RECORD_VERSION", 2):
        log.read(1)


def test_a_copied_record_is_refused(place: Place) -> None:
    """A record under another slot's name is damage, not a decision."""
    log, files = log_in(place), place(QUERY_ID)
    log.decide(record(1))
    files.put(named(2), files.read(named(1)) or b"")
    with raised(InvariantBroken, named(2), "attempt 0 of epoch 1"):
        log.read(2)


def test_a_missing_record_stops_a_start(place: Place) -> None:
    """A gap between attempts, and a lost batch before a later one, are found by the first read."""
    log, files = log_in(place), place(QUERY_ID)
    for batch_id in (1, 2):
        log.decide(record(batch_id, 0, decision=Decision.ABORT))
        log.decide(record(batch_id, 1))
    files.delete([named(2)])
    with raised(InvariantBroken, "missing"):
        log_in(place).read(2)
    files.delete([named(1, attempt) for attempt in (0, 1)])
    with raised(InvariantBroken, "missing"):
        log_in(place).read(1)


def test_the_log_does_not_grow(place: Place) -> None:
    """After sixty epochs there are one record, one floor, and its id."""
    log = log_in(place)
    for batch_id in range(60):
        log.decide(record(batch_id))
        log.prune(batch_id)
    assert sorted(place(QUERY_ID).names()) == [named(59), f"floor-{59:020d}", LOG_ID]


def test_an_emptied_log_is_told_from_a_pruned_one(place: Place) -> None:
    """A start compares the end of the log with what the checkpoint knows."""
    log = log_in(place)
    assert log.last_batch() is None
    for batch_id in range(9):
        log.decide(record(batch_id))
    log.prune(5)
    assert log.last_batch() == 8
    files = place(QUERY_ID)
    files.delete(files.names())
    assert log_in(place).last_batch() is None


def test_a_void_commit_is_not_redelivered(place: Place) -> None:
    """A zombie starter that already began does not take over the void COMMIT of another zombie."""
    newer, starter = log_in(place), SlotLog(place(QUERY_ID), QUERY_ID)
    assert starter.read(4) == ()
    for batch_id in range(4, 12):
        newer.decide(record(batch_id))
    newer.prune(10)
    void = json.dumps(record(5, 0, "zombie").to_json()).encode()
    place(QUERY_ID).put(named(5), void)
    with pytest.raises(CheckpointRefused):
        starter.read(5)


def test_zombies_never_get_a_pruned_slot(place: Place) -> None:
    """Many decide while the log is pruned under them: each stands before the floor or is fenced."""
    log = log_in(place)
    log.read(0)
    zombies = [log_in(place) for _ in range(4)]
    start = threading.Barrier(5)

    def decide(number: int) -> None:
        start.wait()
        for batch_id in range(30):
            with suppress(Fenced):
                zombies[number].decide(record(batch_id, number, f"z{number}", Decision.ABORT))

    with ThreadPoolExecutor(4) as pool:
        deciding = [pool.submit(decide, n) for n in range(4)]
        start.wait()
        for below in range(1, 31):
            log.prune(below)
        for future in deciding:
            future.result()
    assert not [name for name in place(QUERY_ID).names() if name.endswith(".json")]
