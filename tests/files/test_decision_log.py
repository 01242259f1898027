"""The decision log in a folder and in object stores: zombies at every step, and every failure of the
storage. (The contract, and damage, in every kind of place: tests/contract/test_log.py.)
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from exactum.errors import (
    CheckpointRefused,
    ExactumError,
    Fenced,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.files.sink import FileSink
from exactum.files.slot_log import LOG_ID, SlotLog, slot_name
from exactum.storage.folder import Folder
from exactum.storage.objects import ObjectStore
from exactum.storage.storage import Storage
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.errors import raised
from tests.kit.files.s3_server import s3_server
from tests.kit.nth_call import after, at_call
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow


def storage_of(kind: str, folder: Path) -> Storage:
    if kind == "folder":
        return Folder(folder)
    return ObjectStore.of("memory://log", MemoryStore()).below("decisions")


def log_in(storage: Storage, query_id: str = QUERY_ID) -> SlotLog:
    return SlotLog(storage, query_id, prune_every=1)


def test_a_record_of_another_query_is_refused(memory: Path) -> None:
    """Two queries on one log is found at the first read, and at a lost race."""
    log = log_in(Folder(memory))
    log_in(Folder(memory), "other").decide(record(1, query_id="other"))
    whose = ["query other;", f"query {QUERY_ID}."]
    with raised(CheckpointRefused, "LOG_OTHER_QUERY", *whose):
        log.read(1)
    with raised(CheckpointRefused, "LOG_OTHER_QUERY", *whose):
        log.decide(record(1))


def test_pruning_works_only_now_and_then(memory: Path) -> None:
    """Called after every batch it does real work once in twenty."""
    log = SlotLog(Folder(memory), QUERY_ID)
    removed = []
    for batch_id in range(100):
        log.decide(record(batch_id))
        removed.append(log.prune(batch_id))
    assert [r for r in removed if r] == [20, 20, 20, 20]


# ---- zombies -------------------------------------------------------------------------------------

CALLS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "folder": (os, ("open", "link", "listdir", "fsync", "stat")),
    "objects": (obstore, ("put", "get", "list", "delete")),
}


def _zombie(
    kind: str, folder: Path, attempt: int, at: int, patched: pytest.MonkeyPatch
) -> tuple[object, bool, list[str]]:
    """What a zombie's decide for batch 5 gets if two pruning rounds come before its ``at``-th
    call, whether they came, and what is left.
    """
    storage = storage_of(kind, folder)
    newer, zombie = log_in(storage), log_in(storage)
    for batch_id in range(12):
        newer.decide(record(batch_id))
    newer.prune(3)
    zombie.decide(record(11))  # it stands; the storage has been tried

    def prune() -> None:
        newer.prune(8)
        newer.prune(10)

    pruned = at_call(patched, *CALLS[kind], at, after(prune))
    stands: object = "fenced"
    try:
        stands = zombie.decide(record(5, attempt, "zombie"))
    except Fenced:
        pass
    finally:
        patched.undo()
    return stands, pruned(), storage.names()


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("kind", CALLS)
def test_a_zombie_is_fenced_whenever_the_pruner_comes(
    memory: Path, monkeypatch: pytest.MonkeyPatch, kind: str, attempt: int
) -> None:
    """Two pruning rounds may come between any two calls of a zombie's decide.

    It is given what stood before the pruner came, or is fenced; a slot emptied by the pruner is
    never its own.
    """
    observed: list[object] = []
    for at in range(1, 40):
        stands, pruned, left = _zombie(kind, memory / str(at), attempt, at, monkeypatch)
        observed.append("fenced" if stands == "fenced" else "stands")
        expected = record(5) if attempt == 0 else record(5, 1, "zombie")
        assert stands in ("fenced", expected), f"at call {at}: {stands}"
        assert not (pruned and [n for n in left if n.startswith(f"{5:020d}-")]), f"at call {at}"
        if not pruned:
            break
    assert observed[0] == "fenced"
    assert observed[-1] == "stands"
    print(f"{len(observed)} runs: {observed.count('fenced')} fenced")


def test_a_listing_that_misses_the_floor_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pruning round in the middle of a listing can hide both markers: the record is then
    looked for.
    """
    newer, zombie = log_in(Folder(tmp_path)), log_in(Folder(tmp_path))
    zombie.decide(record(0))
    for batch_id in range(12):
        newer.decide(record(batch_id))
    newer.prune(8)
    real = os.listdir
    missed = []

    def listdir(folder: Path) -> list[str]:
        if missed:
            return real(folder)
        missed.append(True)
        newer.prune(10)  # makes floor-10, removes our void record, removes floor-8
        return [n for n in real(folder) if not n.startswith("floor-")]

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(Fenced):
        zombie.decide(record(5, 0, "zombie"))
    assert missed


# ---- a folder that fails -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code", "error", "facts"),
    [
        ("link", errno.EPERM, SettingRefused, ["FOLDER_HARD_LINKS"]),
        ("link", errno.EIO, OutcomeUnknown, []),  # neither success nor failure
        ("fsync", errno.ENOSPC, Unavailable, []),  # no record was made: the link comes later
    ],
)
def test_a_folder_that_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    error: type[ExactumError],
    facts: list[str],
) -> None:
    """Nothing is left of a record that it did not take."""

    def fails(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    Folder(tmp_path).open()
    monkeypatch.setattr(os, call, fails)
    with raised(error, *facts):
        log_in(Folder(tmp_path)).decide(record(1))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("call", "error", "where"),
    [
        ("decide", OutcomeUnknown, f"/{slot_name(0, 0)} "),  # it is there
        ("read", Unavailable, " "),
    ],
)
def test_a_record_counts_when_it_is_durable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    error: type[ExactumError],
    where: str,
) -> None:
    """Its name too, and whoever made it: who reads it may act on it."""
    log_in(Folder(tmp_path)).decide(record(0, 0, "other"))
    log = log_in(Folder(tmp_path))
    log.decide(record(0))
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with raised(error, f"{tmp_path}{where}", "Input/output error"):
        log.decide(record(0)) if call == "decide" else log.read(0)


# ---- a store that fails --------------------------------------------------------------------------


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_reply_of_the_put_is_settled_or_unknown(
    monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """A put that took effect and reported failure stands; one that is not seen is neither
    success nor failure.
    """
    real = obstore.put

    def put(*args: Any, **kwargs: Any) -> Any:
        if arrives:
            real(*args, **kwargs)
        raise obstore.exceptions.GenericError("the connection was reset")

    log = log_in(ObjectStore.of("memory://log", MemoryStore()))
    log.decide(record(0))
    monkeypatch.setattr(obstore, "put", put)
    if arrives:
        assert log.decide(record(1)) == record(1)
    else:
        with raised(OutcomeUnknown, f"memory://log/{slot_name(1, 0)}", "the connection was reset"):
            log.decide(record(1))


def test_a_store_without_conditional_puts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""

    def put(*args: Any, **kwargs: Any) -> Any:
        raise obstore.exceptions.NotSupportedError("not implemented")

    storage = ObjectStore.of("memory://log", MemoryStore())
    monkeypatch.setattr(obstore, "put", put)
    with raised(SettingRefused, "STORE_CONDITIONAL_PUT", "memory://log", "not implemented"):
        log_in(storage).decide(record(1))
    assert storage.entries() == []


@pytest.mark.parametrize("condition", ["ignored", "raced"])
def test_a_store_that_takes_every_put_is_refused(condition: str) -> None:
    """It does not know If-None-Match, or looks first and puts later: seen before anything is
    written, by each driver.
    """
    with s3_server(condition) as server:
        for batch_id in (0, 0, 1):
            log = log_in(ObjectStore.of("s3://bucket/log", server.settings))
            with raised(SettingRefused, "STORE_CONDITIONAL_PUT", "s3://bucket/log", " of 5 puts"):
                log.decide(record(batch_id))
            assert log.read(batch_id) == ()
        with raised(SettingRefused, "STORE_CONDITIONAL_PUT", "s3://bucket/table", " of 5 puts"):
            OpenedSink(FileSink("s3://bucket/table", store=server.settings))
        assert server.objects == {}


def test_a_store_that_keeps_to_conditional_puts_is_tried_once() -> None:
    """Two drivers that decide one slot are given the same record; what was there to try it is
    gone.
    """
    with s3_server("kept") as server:
        storage = ObjectStore.of("s3://bucket/log", server.settings)
        logs = [log_in(storage), log_in(storage)]
        for batch_id in range(5):
            mine = [record(batch_id, 0, f"i{i}") for i in range(2)]
            with ThreadPoolExecutor(2) as pool:
                given = list(pool.map(lambda log, m: log.decide(m), logs, mine))
            assert given[0] == given[1]
            assert given[0] in mine
        records = [f"log/{batch_id:020d}-0.json" for batch_id in range(5)]
        assert sorted(server.objects) == [*records, f"log/{LOG_ID}"]
        assert server.tried in (1, 2), "by the first, or by both at the same moment"


@pytest.mark.parametrize(
    ("refusal", "more", "error", "code"),
    [
        ((403, "AccessDenied"), {}, SettingRefused, "STORE_ACCESS"),
        ((401, ""), {}, SettingRefused, "STORE_ACCESS"),
        ((404, "NoSuchBucket"), {}, SettingRefused, "STORE_BUCKET"),
        ((400, "InvalidBucketName"), {}, SettingRefused, "STORE_BUCKET"),
        ((400, "AuthorizationHeaderMalformed"), {}, SettingRefused, "STORE_REGION"),
        ((301, "PermanentRedirect"), {}, SettingRefused, "STORE_REGION"),
        ((403, "RequestTimeTooSkewed"), {}, SettingRefused, "STORE_CLOCK"),
        ((400, "ExpiredToken"), {}, Unavailable, None),  # a new start may be given another one
        ((500, "InternalError"), {}, Unavailable, None),
        ((503, "SlowDown"), {}, Unavailable, None),
        (None, {"endpoint": "nonsense"}, SettingRefused, "STORE_ACCESS"),
        (None, {"endpoint": "http://127.0.0.1:99999"}, SettingRefused, "STORE_ACCESS"),
        (None, {"allow_http": False}, SettingRefused, "STORE_ACCESS"),
        (None, {"endpoint": "http://127.0.0.1:1"}, Unavailable, None),
        (None, {"endpoint": "http://no-such-host.invalid"}, Unavailable, None),
    ],
    ids=str,
)
def test_what_no_other_start_mends_is_a_setting(
    refusal: tuple[int, str] | None, more: dict[str, Any], error: type[ExactumError], code: str
) -> None:
    """Of the log and of the sink: an address or credentials that never work. Three lines at most."""
    with s3_server("kept") as server:
        settings = {**server.settings, "retry_config": {"max_retries": 0}, **more}
        server.refusal = refusal
        for ask in (
            lambda: log_in(ObjectStore.of("s3://bucket/log", settings)).read(0),
            lambda: OpenedSink(FileSink("s3://bucket/table", store=settings)),
        ):
            with pytest.raises(error) as caught:
                ask()
            assert getattr(caught.value, "code", None) == code
            assert "s3://bucket" in str(caught.value) and str(caught.value).count("\n") < 3


def test_a_store_that_fails_while_it_is_tried_is_unavailable() -> None:
    """Nothing is known, nothing was written; the next try asks again."""
    with s3_server("kept") as server:
        settings = {**server.settings, "retry_config": {"max_retries": 0}}
        log = log_in(ObjectStore.of("s3://bucket/log", settings))
        server.broken = True
        with raised(Unavailable, "s3://bucket/log", "500", "InternalError"):
            log.decide(record(0))
        server.broken = False
        assert server.objects == {}
        assert log.decide(record(0)) == record(0)


def test_credentials_are_never_shown() -> None:
    with pytest.raises(SettingRefused) as refused:
        ObjectStore.of("s3://user:secret@bucket/log", {"no_such": "secret"})
    assert "secret" not in str(refused.value)
