"""``WriteAheadSink``: the contract, a crash at every file operation, two drivers, and the bound
on repeats.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from exactum.custom import write_ahead
from exactum.custom.write_ahead import WriteAheadSink
from exactum.custom.write_ahead_log import WriteAheadLog
from exactum.errors import (
    CodeFailed,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Sink, WriteOrder
from exactum.storage.at import storage_at
from exactum.storage.storage import Storage
from exactum.testing import (
    Crash,
    FaultPlan,
    MemoryDecisionLog,
    MemoryStorage,
    SinkContract,
    TaskJob,
    interpose,
    sweep,
)
from exactum.testing.participant_contract import NOT_REPEATED
from tests.kit.custom.custom_rows import batches
from tests.kit.custom.noted_target import Target

pytestmark = pytest.mark.slow

QUERY = "b2f0e8c4-0000-4000-8000-000000000001"
ROWS_PER_SEND = 2
KINDS = ("folder", "objects")


def make_sink(
    folder: Path, send: Callable[[Any, str], None], kind: str = "folder", **settings: Any
) -> WriteAheadSink:
    """Its log is in files below ``wal``, of a store or not."""
    given = {"rows_per_send_max": ROWS_PER_SEND, "backoff_ms": 0, "tries_max": 2, **settings}
    if kind == "folder":
        return WriteAheadSink(folder / "wal", send, name="api", **given)
    (folder / "wal").mkdir(exist_ok=True)
    store = LocalStore(folder / "wal")
    return WriteAheadSink("s3://bucket/wal", send, name="api", store=store, **given)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
class TestWriteAheadSink(SinkContract):
    """Toward a target that keeps the keys."""

    @pytest.fixture(autouse=True)
    def _place(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder

    def make_sink(self) -> Sink:
        return make_sink(self.folder, Target(self.folder / "target").send, self.kind)

    def visible_rows(self) -> Iterable[object]:
        return Target(self.folder / "target").deduplicated()

    def batches(self) -> Sequence[Any]:
        return batches()

    def reset(self) -> None:
        shutil.rmtree(self.folder / "wal", ignore_errors=True)
        (self.folder / "target").unlink(missing_ok=True)

    def leftovers(self) -> Sequence[object]:
        files = [p for p in (self.folder / "wal").rglob("*") if p.is_file()]
        return [p for p in files if not re.fullmatch(r"sent-\d{20}|scope", p.name)]

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        for p in prepared:
            next((self.folder / "wal").rglob(f"{p.identity}/rows.arrow")).unlink()


class World:
    """A query over a write-ahead sink, its decision log and its target, through several
    incarnations.
    """

    def __init__(self, folder: Path, kind: str = "folder") -> None:
        self.kind = kind
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.folder = folder
        self.target = Target(folder / "target")
        self.storage = MemoryStorage()
        self.rows = batches(6, 5)  # three epochs of two partitions, three chunks in each
        self.done = 0

    def run(
        self,
        send: Callable[[Any, str], None] | None = None,
        epochs: int = 3,
        around: Callable[[str, Callable[[], object]], object] = lambda label, call: call(),
        **settings: Any,
    ) -> BaseException | None:
        """One incarnation from where the checkpoint stands; returns what ended it."""
        run = QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE)
        try:
            sink = make_sink(self.folder, send or self.target.send, self.kind, **settings)
            opened: OpenSink = sink.open(run, "api")
            log = interpose(MemoryDecisionLog(self.storage, QUERY), around)
            coordinator = Coordinator(run, [interpose(opened.participant, around)], log)
            for batch_id in range(self.done, epochs):
                job = TaskJob(
                    opened.writers, [[b] for b in self.rows[2 * batch_id : 2 * batch_id + 2]]
                )
                coordinator.run(batch_id, SourceOffsets(), job)
                self.done = max(self.done, batch_id + 1)
        except (ExactumError, Crash) as error:
            return error
        return None

    def judge(self, repeats_max: int) -> None:
        expected = Counter(tuple(row.values()) for batch in self.rows for row in batch.to_pylist())
        assert Counter(self.target.deduplicated()) == expected
        assert self.target.repeats() <= repeats_max, f"{self.target.repeats()} chunks were repeated"
        found = (p.name for p in (self.folder / "wal").rglob("*") if p.is_file())
        files = [name for name in found if name != "scope"]
        assert [f for f in files if not f.startswith("sent-")] == []
        assert len(files) <= 2

    def order(self) -> list[Any]:
        """The rows in the order in which their keys arrived first."""
        return self.target.deduplicated()


def test_a_run_without_faults_sends_each_chunk_once_and_in_order(folder: Path) -> None:
    """Epoch by epoch, partition by partition, row by row; nothing is repeated and the log is
    empty at the end.
    """
    world = World(folder / "w")
    assert world.run() is None
    world.judge(0)
    assert world.order() == [
        tuple(row.values()) for batch in world.rows for row in batch.to_pylist()
    ]
    assert [len(rows) for _, rows in world.target.requests()] == [2, 2, 1] * 6


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_every_step_of_the_log_repeats_at_most_one_chunk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Died, or failed, before or after any call of the storage or any request: all rows arrive, one
    chunk may come twice.
    """

    def scenario(plan: FaultPlan) -> None:
        world = World(folder / "w", kind)
        with monkeypatch.context() as patched:
            patched.setattr(
                write_ahead, "storage_at", lambda *place: Struck(storage_at(*place), plan.around)
            )
            world.run(send=partial(send_through, plan, world.target))
        error = world.run()
        assert error is None, error
        # A failed try in the same process and the restart after it: the same chunk in hand both
        # times.
        world.judge(1)
        ordered = [tuple(row.values()) for batch in world.rows for row in batch.to_pylist()]
        assert world.order() == ordered

    runs = sweep(scenario, NOT_REPEATED)
    assert runs > 300, runs


class Struck:
    """A storage whose calls, and those of its new files, go through ``around``."""

    def __init__(self, storage: Storage, around: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._storage = storage
        self._around = around

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found) or name in ("reader", "failure"):
            return found
        return lambda *args: self._around(name, lambda: found(*args))

    def below(self, prefix: str) -> Struck:
        return Struck(self._storage.below(prefix), self._around)

    def create(self, name: str) -> Any:
        file: Any = self._around("create", lambda: self._storage.create(name))
        finish = file.finish
        file.finish = lambda: self._around("finish", finish)
        return file


def send_through(plan: FaultPlan, target: Target, batch: Any, key: str) -> None:
    plan.around("send", lambda: target.send(batch, key))


def test_an_old_driver_that_wakes_up_repeats_the_chunk_in_hand_and_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stalled at any request, any acknowledgement, any call of the protocol, while a new driver
    does everything.

    A chunk is in hand from just before its request until its acknowledgement; stalled elsewhere,
    nothing is repeated.
    """
    at, hit = 0, "?"
    stopped: Counter[str] = Counter()
    while hit:
        at, hit = at + 1, ""
        world = World(folder / "w")
        calls = 0

        def stall(
            label: str, call: Callable[[], object], world: World = world, at: int = at
        ) -> object:
            nonlocal calls, hit
            calls += 1
            if calls == at:
                hit = label
                assert world.run() is None
            return call()

        def send(batch: Any, key: str, world: World = world, stall: Any = stall) -> None:
            stall("before", lambda: None)
            world.target.send(batch, key)
            stall("after", lambda: None)

        def acknowledge(
            log: WriteAheadLog,
            identity: str,
            number: int,
            stall: Any = stall,
            real: Any = WriteAheadLog.acknowledge,
        ) -> None:
            real(log, identity, number)
            stall("acknowledged", lambda: None)

        with monkeypatch.context() as patched:
            patched.setattr(WriteAheadLog, "acknowledge", acknowledge)
            error = world.run(send=send, around=stall)
        stopped[type(error).__name__] += 1
        error = world.run()
        assert error is None, error
        world.judge(1 if hit in ("before", "after") else 0)
    assert stopped["Fenced"] > 20, stopped


def test_the_newer_of_two_redeliveries_stops_the_older(folder: Path) -> None:
    """Not only the run that decided: of runs that take over, each stops the ones before it at
    their next chunk.
    """
    world = World(folder / "w")
    assert isinstance(world.run(send=failing_after(world.target, 0), epochs=1), Unavailable)
    ended: list[BaseException | None] = []

    def send(batch: Any, key: str) -> None:
        world.target.send(batch, key)
        if not ended:
            ended.append(None)
            assert isinstance(world.run(send=failing_after(world.target, 2), epochs=1), Unavailable)

    error = world.run(send=send, epochs=1)
    assert isinstance(error, Fenced), error
    assert "taken over" in str(error)
    assert world.run() is None
    world.judge(2)  # the older one had one chunk in hand, the newer one none that was acknowledged


def failing_after(target: Target, requests: int) -> Callable[[Any, str], None]:
    left = [requests]

    def send(batch: Any, key: str) -> None:
        if not left[0]:
            raise ConnectionError("the target is down")
        left[0] -= 1
        target.send(batch, key)

    return send


def test_tries_are_bounded_and_the_next_start_goes_on_where_the_last_one_stood(
    folder: Path,
) -> None:
    """Each restart sends on from the first chunk that is not acknowledged; nothing acknowledged
    is repeated.
    """
    world = World(folder / "w")
    for _ in range(9):
        error = world.run(send=failing_after(world.target, 2))
        assert error is None or isinstance(error, Unavailable)
    assert world.run() is None
    world.judge(0)


def test_a_failed_try_is_repeated_with_the_same_key(folder: Path) -> None:
    """A target that fails now and then stops nobody; the tries of one chunk have one key."""
    world = World(folder / "w")
    keys: list[str] = []

    def send(batch: Any, key: str) -> None:
        keys.append(key)
        if len(keys) % 3:
            raise TimeoutError("slow today")
        world.target.send(batch, key)

    assert world.run(send=send, tries_max=3) is None
    assert keys[0::3] == keys[1::3] == keys[2::3]
    world.judge(0)


def test_a_target_that_will_never_take_a_row_stops_at_once(folder: Path) -> None:
    """HeuristicOutcome from send is not tried again."""
    world = World(folder / "w")
    tried: list[str] = []

    def send(batch: Any, key: str) -> None:
        tried.append(key)
        raise HeuristicOutcome("422 Unprocessable: text is too long")

    error = world.run(send=send, tries_max=5)
    assert isinstance(error, HeuristicOutcome)
    assert "422" in str(error)
    assert len(tried) == 1


async def later() -> None:
    """A coroutine that nobody runs."""


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(lambda: False, "False (bool)", id="false"),
        pytest.param(lambda: "<Response [500]>", "Response [500]", id="a response"),
        pytest.param(Future, "Future", id="a future"),
        pytest.param(later, "has not run", id="async def"),
        pytest.param(lambda: (yield), "has not run", id="yield"),
    ],
)
def test_a_send_that_answers_has_acknowledged_nothing(
    folder: Path, answer: Callable[[], Any], text: str
) -> None:
    """Failure that is returned, or a coroutine: nothing is marked as sent, and a corrected send
    sends it all.
    """
    world = World(folder / "w")
    error = world.run(send=lambda batch, key: answer())
    assert isinstance(error, CodeFailed), error
    for part in (text, "2 rows", "send()"):
        assert part in str(error)
    assert world.run() is None
    world.judge(0)


def test_under_weaker_guarantees_a_send_that_answers_fails_its_task(folder: Path) -> None:
    """There the task sends."""
    run = QueryRun(QUERY, new_incarnation(), Guarantee.AT_LEAST_ONCE)
    opened = make_sink(folder, lambda batch, key: False).open(run, "api")  # type: ignore[arg-type]
    with pytest.raises(CodeFailed, match=r"send\(\) returned False"):
        TaskJob(opened.writers, [[batches()[0]]])(WriteOrder(run, 0, 0, 1))


def test_chunks_stay_the_same_when_the_setting_changes(folder: Path) -> None:
    """Keys name the same rows although the restart has another rows_per_send_max."""
    world = World(folder / "w")
    assert isinstance(world.run(send=failing_after(world.target, 1)), Unavailable)
    assert world.run(rows_per_send_max=100) is None
    world.judge(0)


def test_a_redelivery_days_later_sends_nothing(folder: Path) -> None:
    """When all is sent and tidied up, the mark of that batch or of a later one says so."""
    world = World(folder / "w")
    assert world.run() is None
    before = world.target.requests()
    world.done = 0
    assert world.run() is None
    assert world.target.requests() == before


def test_a_batch_that_an_operator_has_run_again_is_sent_again(folder: Path) -> None:
    """An old mark of the same batch says nothing about a transaction whose rows are there."""
    world = World(folder / "w")
    assert world.run(epochs=1) is None
    world.storage.records.clear()
    world.done = 0
    assert world.run(epochs=1) is None
    assert len(world.target.deduplicated()) == 20


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_damaged_log_of_a_decided_epoch_stops_and_says_what_is_missing(
    folder: Path, how: str
) -> None:
    """A file that was cut or removed behind our back is never taken for sent; what was sent
    before is not repeated.
    """
    world = World(folder / "w")
    assert isinstance(world.run(send=failing_after(world.target, 1)), Unavailable)
    files = sorted((folder / "w" / "wal").rglob("*.arrow"))
    file = next(f for f in files if f.parent.name == world.target.requests()[0][0][:-2])
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    else:
        file.unlink()
    error = world.run()
    assert isinstance(error, HeuristicOutcome), error
    assert str(file) in str(error)
    assert "5 rows" in str(error)
    assert world.target.repeats() == 0
    again = world.run()
    assert isinstance(again, HeuristicOutcome), again


def test_what_is_decided_is_not_aborted(folder: Path) -> None:
    """Not even by a sighting that is older than the decision; and what is not decided is."""
    world = World(folder / "w")
    assert isinstance(world.run(send=failing_after(world.target, 1)), Unavailable)
    participant = make_sink(world.folder, print).open(
        QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE), "api"
    )
    sightings = participant.participant.list_open()
    assert len(sightings) == 2
    participant.participant.abort(sightings)
    assert world.run() is None
    world.judge(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_acknowledgement_takes_none_back(folder: Path, kind: str) -> None:
    """An old driver that wakes up notes the chunk that it had in hand."""
    sink = make_sink(folder, print, kind)
    run = QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE)
    sink.open(run, "api")
    log = sink._log(QUERY, "api")
    log.storage.make("t")
    log.begin_sending(["t"])
    for number, acknowledged in ((0, 1), (2, 3), (1, 3), (3, 4)):
        log.acknowledge("t", number)
        assert log.acknowledged("t") == acknowledged


def test_a_folder_that_the_driver_does_not_share_is_refused(folder: Path) -> None:
    """The executors' file is not where the driver looks: nothing is decided, and no start mends
    it.
    """
    run = QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE)
    here = make_sink(folder / "here", print).open(run, "api")
    there = make_sink(folder / "there", print).open(run, "api")
    prepared = TaskJob(there.writers, [[batches()[0]]])(WriteOrder(run, 0, 0, 1))
    with pytest.raises(SettingRefused, match="share"):
        here.participant.verify(prepared)
    shutil.rmtree(folder / "there")
    with pytest.raises(SettingRefused, match="shares"):
        TaskJob(there.writers, [[batches()[0]]])(WriteOrder(run, 0, 0, 1))


@pytest.mark.parametrize(
    "settings",
    [
        {"rows_per_send_max": 0},
        {"tries_max": 0},
        {"backoff_ms": -1},
        {"backoff_ms_max": 1.5},
        {"send": 3},
        {"send": None},
    ],
)
def test_settings_that_cannot_work_are_refused(folder: Path, settings: dict[str, Any]) -> None:
    """At once, with the setting's name."""
    with pytest.raises(SettingRefused, match=next(iter(settings))):
        WriteAheadSink(**{"folder": folder, "send": print, **settings})


@pytest.mark.parametrize("place", ["hdfs://node/wal", "s3:/bucket/wal", "file:/data/wal", "~/wal"])
def test_what_is_no_path_is_refused_as_the_folder(place: str) -> None:
    """A folder of that very name, below where the program is started, is not what was meant."""
    with pytest.raises(SettingRefused, match="given as a path"):
        WriteAheadSink(place, print)


def test_a_folder_that_cannot_be_made_is_refused(folder: Path) -> None:
    """At start, before anything is written."""
    (folder / "wal").write_text("a file")
    with pytest.raises(SettingRefused, match="Not a directory"):
        make_sink(folder, print).open(
            QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE), "api"
        )


def test_the_payload_holds_no_more_than_it_must(folder: Path) -> None:
    """What the decision record keeps of a transaction: its length and how it is cut."""
    run = QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE)
    opened = make_sink(folder, print).open(run, "api")
    (prepared,) = TaskJob(opened.writers, [[batches()[0]]])(WriteOrder(run, 0, 0, 1))
    assert set(json.loads(prepared.payload)) == {"size_bytes", "rows_per_send"}
    assert prepared.rows == 3
