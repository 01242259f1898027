"""The decision log in an object store: the contract over real stores of obstore, races, damage,
and zombies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from exactum.errors import (
    CheckpointRefused,
    ExactumError,
    Fenced,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.files import object_decision_log
from exactum.files.object_decision_log import ObjectDecisionLog
from exactum.files.sink import FileSink
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision
from exactum.testing import LogContract
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.files.epochs_in_files import OpenedSink
from tests.kit.files.s3_server import s3_server


class TestInMemory(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.store = MemoryStore()

    def open_log(self, query_id: str) -> DecisionLog:
        return ObjectDecisionLog("memory://log", query_id, store=self.store, prune_every=1)


class TestOnDisk(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def open_log(self, query_id: str) -> DecisionLog:
        return ObjectDecisionLog(
            "file://log", query_id, store=LocalStore(self.folder), prune_every=1
        )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def log_in(store: Any, query_id: str = QUERY_ID) -> ObjectDecisionLog:
    return ObjectDecisionLog("memory://log", query_id, store=store, prune_every=1)


def names(store: Any) -> list[str]:
    return sorted(str(m["path"]) for chunk in obstore.list(store) for m in chunk)


def test_racing_threads_over_files_have_one_winner_for_each_slot(tmp_path: Path) -> None:
    """Four handles over one folder, 50 slots: all are told the same record, which is one of
    theirs.
    """
    logs = [log_in(LocalStore(tmp_path)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for batch_id in range(50):
            mine = [record(batch_id, 0, f"i{i}") for i in range(4)]
            told = set(pool.map(lambda log, m: log.decide(m), logs, mine))
            assert len(told) == 1
            assert told <= set(mine)


def test_a_record_is_readable_by_a_person(store: MemoryStore) -> None:
    """One object, named by query, batch and attempt, of indented JSON."""
    log_in(store).decide(record(42))
    assert names(store) == [f"{QUERY_ID}/00000000000000000042-0.json"]
    assert bytes(obstore.get(store, names(store)[0]).bytes()).startswith(b'{\n  "version"')


def test_queries_share_a_place(store: MemoryStore) -> None:
    """Each has a folder of its own; a record copied between them is refused."""
    one, other = log_in(store), log_in(store, f"{QUERY_ID}-eu")
    one.decide(record(1))
    assert other.read(1) == ()
    obstore.copy(store, names(store)[0], f"{QUERY_ID}-eu/{1:020d}-0.json")
    with pytest.raises(CheckpointRefused, match="belongs to query"):
        log_in(store, f"{QUERY_ID}-eu").read(1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b"\xff"])
def test_a_damaged_record_stops_the_query(store: MemoryStore, content: bytes) -> None:
    """A record that cannot be read is never taken for an absent one."""
    obstore.put(store, f"{QUERY_ID}/{1:020d}-0.json", content)
    with pytest.raises(InvariantBroken, match="damaged"):
        log_in(store).read(1)
    with pytest.raises(InvariantBroken, match="damaged"):
        log_in(store).decide(record(1))


def test_a_missing_record_stops_a_start(store: MemoryStore) -> None:
    """A gap between attempts, and a lost batch before a later one, are found by the first read."""
    log = log_in(store)
    for batch_id in (1, 2):
        log.decide(record(batch_id, 0, decision=Decision.ABORT))
        log.decide(record(batch_id, 1))
    obstore.delete(store, f"{QUERY_ID}/{2:020d}-0.json")
    with pytest.raises(InvariantBroken, match="missing"):
        log_in(store).read(2)
    obstore.delete(store, [f"{QUERY_ID}/{1:020d}-{a}.json" for a in (0, 1)])
    with pytest.raises(InvariantBroken, match="missing"):
        log_in(store).read(1)


def test_the_log_does_not_grow(store: MemoryStore) -> None:
    """After sixty epochs there are one record and one floor."""
    log = log_in(store)
    for batch_id in range(60):
        log.decide(record(batch_id))
        log.prune(batch_id)
    assert names(store) == [f"{QUERY_ID}/{59:020d}-0.json", f"{QUERY_ID}/floor-{59:020d}"]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_reply_of_the_put_is_settled_or_unknown(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """A put that took effect and reported failure stands; one that is not seen is neither
    success nor failure.
    """
    real = obstore.put

    def put(*args: Any, **kwargs: Any) -> Any:
        if arrives:
            real(*args, **kwargs)
        raise obstore.exceptions.GenericError("the connection was reset")

    log = log_in(store)
    log.decide(record(0))
    monkeypatch.setattr(object_decision_log.obstore, "put", put)
    if arrives:
        assert log.decide(record(1)) == record(1)
    else:
        with pytest.raises(OutcomeUnknown, match="may or may not"):
            log.decide(record(1))


def test_a_store_without_conditional_puts_is_refused(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written."""

    def put(*args: Any, **kwargs: Any) -> Any:
        raise obstore.exceptions.NotSupportedError("not implemented")

    monkeypatch.setattr(object_decision_log.obstore, "put", put)
    with pytest.raises(SettingRefused, match="no conditional put"):
        log_in(store).decide(record(1))
    assert names(store) == []


@pytest.mark.parametrize("condition", ["ignored", "raced"])
def test_a_store_that_takes_every_put_is_refused(condition: str) -> None:
    """It does not know If-None-Match, or looks first and puts later: seen before anything is
    written.
    """
    with s3_server(condition) as server:
        for batch_id in (0, 0, 1):  # by each driver, whatever is there
            log = ObjectDecisionLog("s3://bucket/log", QUERY_ID, store=server.settings)
            with pytest.raises(
                SettingRefused,
                match=r"does not keep to conditional puts: \d of 5 puts .* were taken",
            ):
                log.decide(record(batch_id))
            assert log.read(batch_id) == ()
        assert server.objects == {}


def test_a_store_that_keeps_to_conditional_puts_is_tried_once() -> None:
    """Two drivers that decide one slot are told the same record; what was there to try it is
    gone.
    """
    with s3_server("kept") as server:
        logs = [
            ObjectDecisionLog("s3://bucket/log", QUERY_ID, store=server.settings) for _ in range(2)
        ]
        for batch_id in range(5):
            mine = [record(batch_id, 0, f"i{i}") for i in range(2)]
            with ThreadPoolExecutor(2) as pool:
                told = list(pool.map(lambda log, m: log.decide(m), logs, mine))
            assert told[0] == told[1]
            assert told[0] in mine
        assert sorted(server.objects) == [f"log/{QUERY_ID}/{n:020d}-0.json" for n in range(5)]
        assert server.tried == 2


@pytest.mark.parametrize(
    ("refusal", "more", "error"),
    [
        ((403, "AccessDenied"), {}, SettingRefused),
        ((401, ""), {}, SettingRefused),
        ((404, "NoSuchBucket"), {}, SettingRefused),
        ((400, "InvalidBucketName"), {}, SettingRefused),
        ((400, "AuthorizationHeaderMalformed"), {}, SettingRefused),
        ((301, "PermanentRedirect"), {}, SettingRefused),  # the region
        ((400, "ExpiredToken"), {}, Unavailable),  # a new start may be given another one
        ((500, "InternalError"), {}, Unavailable),
        ((503, "SlowDown"), {}, Unavailable),
        (None, {"endpoint": "nonsense"}, SettingRefused),
        (None, {"endpoint": "http://127.0.0.1:99999"}, SettingRefused),
        (None, {"allow_http": False}, SettingRefused),
        (None, {"endpoint": "http://127.0.0.1:1"}, Unavailable),
        (None, {"endpoint": "http://no-such-host.invalid"}, Unavailable),
    ],
    ids=str,
)
def test_what_no_other_start_mends_is_a_setting(
    refusal: tuple[int, str] | None, more: dict[str, Any], error: type[ExactumError]
) -> None:
    """Of the log and of the sink: an address or credentials that never work."""
    with s3_server("kept") as server:
        settings = {**server.settings, "retry_config": {"max_retries": 0}, **more}
        server.refusal = refusal
        with pytest.raises(error):
            ObjectDecisionLog("s3://bucket/log", QUERY_ID, store=settings).read(0)
        with pytest.raises(error):
            OpenedSink(FileSink("s3://bucket/table", store=settings))


def test_a_store_that_fails_while_it_is_tried_is_unavailable() -> None:
    """Nothing is known, nothing was written; the next try asks again."""
    with s3_server("kept") as server:
        settings = {**server.settings, "retry_config": {"max_retries": 0}}
        log = ObjectDecisionLog("s3://bucket/log", QUERY_ID, store=settings)
        server.broken = True
        with pytest.raises(Unavailable, match="could not be tried"):
            log.decide(record(0))
        server.broken = False
        assert server.objects == {}
        assert log.decide(record(0)) == record(0)


def _zombie(attempt: int, at: int, patched: pytest.MonkeyPatch) -> tuple[object, bool, list[str]]:
    """What a zombie's decide for batch 5 gets if two pruning rounds come before its ``at``-th
    request.
    """
    store = MemoryStore()
    newer = log_in(store)
    for batch_id in range(12):
        newer.decide(record(batch_id))
    newer.prune(3)
    calls, busy = 0, False

    def interrupted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls, busy
            if not busy:
                calls += 1
                if calls == at:
                    busy = True
                    newer.prune(8)
                    newer.prune(10)
                    busy = False
            return real(*args, **kwargs)

        return call

    zombie = log_in(store)
    zombie.decide(record(11))  # it stands; the store has been tried
    for name in ("put", "get", "list", "delete"):
        patched.setattr(obstore, name, interrupted(getattr(obstore, name)))
    try:
        return zombie.decide(record(5, attempt, "zombie")), calls >= at, names(store)
    except Fenced:
        return "fenced", calls >= at, names(store)


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_zombie_is_fenced_whenever_the_pruner_comes(
    monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    """Two pruning rounds may come between any two requests: a slot emptied by the pruner is
    never the zombie's.
    """
    observed = []
    for at in range(1, 40):
        with monkeypatch.context() as patched:
            stands, pruned, left = _zombie(attempt, at, patched)
        observed.append("fenced" if stands == "fenced" else "stands")
        assert stands in ("fenced", record(5) if attempt == 0 else record(5, 1, "zombie")), (
            f"at request {at}: {stands}"
        )
        assert not (pruned and [n for n in left if f"/{5:020d}-" in n]), (
            f"at request {at}: left behind"
        )
        if not pruned:
            break
    assert observed[0] == "fenced"
    assert observed[-1] == "stands"
    print(f"{len(observed)} runs: {observed.count('fenced')} fenced")


def test_credentials_are_never_shown() -> None:
    """Not in an error, not in a name."""
    with pytest.raises(SettingRefused) as refused:
        ObjectDecisionLog("s3://user:secret@bucket/log", QUERY_ID, store={"no_such": "secret"})
    assert "secret" not in str(refused.value)
    log = ObjectDecisionLog(
        "s3://bucket/log",
        QUERY_ID,
        store={"access_key_id": "a", "secret_access_key": "secret", "region": "x"},
    )
    assert "secret" not in repr(log._location)
    assert json.dumps(log._where) == f'"s3://bucket/log/{QUERY_ID}"'
