"""``WriteAheadSink``: a crash at every file operation, two drivers, and the bound on repeats."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactum.custom.write_ahead import ChunkRows, WriteAheadSink
from exactum.errors import (
    USER_CODE,
    CodeFailed,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Scope, TaskName, WriteOrder
from exactum.sinks.staging import StagedName, Staging
from exactum.sinks.writer import TaskFiles
from exactum.storage import folder as folder_storage
from exactum.storage.folder import Folder
from exactum.testing import (
    Crash,
    FaultPlan,
    MemoryDecisionLog,
    MemoryStorage,
    TaskJob,
    interpose,
    sweep,
)
from exactum.testing.participant_contract import NOT_REPEATED
from tests.kit.custom.custom_rows import batches
from tests.kit.custom.noted_target import Target
from tests.kit.errors import check_error, raised
from tests.kit.staged_files import waiting

pytestmark = pytest.mark.slow

QUERY = "b2f0e8c4-0000-4000-8000-000000000001"
ROWS_PER_SEND = 2
STEPS = ("make_folder", "sync_folder", "create_whole", "write_durably", "sync_open")
WRITE_NOTE = Staging.write_note


def make_sink(send: Callable[[Any, str], None], **settings: Any) -> WriteAheadSink:
    given = {"rows_per_send_max": ROWS_PER_SEND, "backoff_ms": 0, "tries_max": 2, **settings}
    return WriteAheadSink(send, name="api", **given)


def new_run(folder: Path, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> QueryRun:
    return QueryRun(QUERY, new_incarnation(), guarantee, Folder(folder / "wal"))


class World:
    """A query over a write-ahead sink, its decision log and its target, through several
    incarnations.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.folder = folder
        self.target = Target(folder / "target")
        self.storage = MemoryStorage()
        self.batches = batches(6, 5)  # three epochs of two partitions, three chunks in each
        self.rows = [tuple(row.values()) for batch in self.batches for row in batch.to_pylist()]
        self.done = 0

    def run(
        self,
        send: Callable[[Any, str], None] | None = None,
        epochs: int = 3,
        around: Callable[[str, Callable[[], object]], object] = lambda label, call: call(),
        **settings: Any,
    ) -> BaseException | None:
        """One incarnation from where the checkpoint stands; returns what ended it."""
        run = new_run(self.folder)
        try:
            opened: OpenSink = make_sink(send or self.target.send, **settings).open(run, "api")
            log = interpose(MemoryDecisionLog(self.storage, QUERY), around)
            coordinator = Coordinator(run, [interpose(opened.participant, around)], log)
            for batch_id in range(self.done, epochs):
                job = TaskJob(
                    opened.writers, [[b] for b in self.batches[2 * batch_id : 2 * batch_id + 2]]
                )
                coordinator.run(batch_id, SourceOffsets(), job)
                self.done = max(self.done, batch_id + 1)
        except (ExactumError, Crash) as error:
            return error
        return None

    def judge(self, repeats_max: int) -> None:
        assert Counter(self.target.deduplicated()) == Counter(self.rows)
        assert self.target.repeats() <= repeats_max, f"{self.target.repeats()} chunks were repeated"
        assert waiting(self.folder / "wal") == []


@pytest.fixture
def world(memory: Path) -> World:
    return World(memory / "w")


def test_a_run_without_faults_sends_each_chunk_once_and_in_order(world: World) -> None:
    """Epoch by epoch, partition by partition, row by row; nothing is repeated and the log is
    empty at the end.
    """
    assert world.run() is None
    world.judge(0)
    assert world.target.deduplicated() == world.rows
    assert [len(rows) for _, rows in world.target.requests()] == [2, 2, 1] * 6


def test_a_power_cut_takes_no_row_of_a_decided_epoch(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the decision each staged file is durable, by what the file system was asked: its bytes
    are fsynced, then it gets its name, then the folder is fsynced.
    """
    bytes_of, durable = set[Path](), set[Path]()
    fsync, rename = os.fsync, os.rename

    def fsyncs(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            durable.update(bytes_of.intersection(path.iterdir()))
        else:
            bytes_of.add(path)

    def renames(source: str, target: str) -> None:
        rename(source, target)
        if Path(source) in bytes_of:
            bytes_of.add(Path(target))

    monkeypatch.setattr(os, "fsync", fsyncs)
    monkeypatch.setattr(os, "rename", renames)
    decided: list[int] = []

    def around(label: str, call: Callable[[], object]) -> object:
        if label == "decide":
            staged = set((memory / "w").rglob("*.staged"))
            assert staged <= durable
            decided.append(len(staged))
        return call()

    assert World(memory / "w").run(around=around) is None
    assert decided[-3:] == [2, 4, 6]


@pytest.mark.sweep
def test_a_crash_at_every_file_operation_repeats_at_most_one_chunk(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Died, or failed, before or after any durable step or any request: all rows arrive, one
    chunk may come twice.
    """

    def scenario(plan: FaultPlan) -> None:
        world = World(memory / "w")
        with monkeypatch.context() as patched:
            for step in STEPS:
                patched.setattr(
                    folder_storage, step, through(plan, step, getattr(folder_storage, step))
                )
            world.run(send=partial(send_through, plan, world.target))
        error = world.run()
        assert error is None, error
        # A failed try in the same process and the restart after it: the same chunk in hand both
        # times.
        world.judge(1)
        assert world.target.deduplicated() == world.rows

    runs = sweep(scenario, NOT_REPEATED)
    assert runs > 300, runs


def through(plan: FaultPlan, step: str, real: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object) -> object:
        try:
            return plan.around(step, lambda: real(*args))
        except ExactumError as error:
            raise OSError(5, str(error)) from error

    return call


def send_through(plan: FaultPlan, target: Target, batch: Any, key: str) -> None:
    plan.around("send", lambda: target.send(batch, key))


def test_an_old_driver_that_wakes_up_repeats_the_chunk_in_hand_and_no_other(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stalled at any request, any acknowledgement, any call of the protocol, while a new driver
    does everything.

    A chunk is in hand from just before its request until its acknowledgement; stalled elsewhere,
    nothing is repeated.
    """
    at, hit = 0, "?"
    stopped: Counter[str] = Counter()
    while hit:
        at += 1
        world = World(memory / "w")
        with monkeypatch.context() as patched:
            hit, error = stalled(world, at, patched)
        stopped[type(error).__name__] += 1
        error = world.run()
        assert error is None, error
        world.judge(1 if hit in ("before", "after") else 0)
    assert stopped["Fenced"] > 20, stopped


def stalled(world: World, at: int, patched: pytest.MonkeyPatch) -> tuple[str, BaseException | None]:
    """A driver that is stalled at call ``at``: where that is, and how it ends."""
    calls, hit = itertools.count(1), ""

    def stall(label: str, call: Callable[[], object] = lambda: None) -> object:
        nonlocal hit
        if next(calls) == at:
            hit = label
            assert world.run() is None
        return call()

    def send(batch: Any, key: str) -> None:
        stall("before")
        world.target.send(batch, key)
        stall("after")

    def noted(self: Staging, *note: str) -> None:
        WRITE_NOTE(self, *note)
        stall("noted")

    patched.setattr(Staging, "write_note", noted)
    error = world.run(send=send, around=stall)
    return hit, error


def test_the_newer_of_two_redeliveries_stops_the_older(world: World) -> None:
    """Not only the run that decided: of runs that take over, each stops the ones before it at
    their next chunk.
    """
    assert isinstance(world.run(send=failing_after(world.target, 0), epochs=1), Unavailable)
    sent: list[str] = []

    def send(batch: Any, key: str) -> None:
        world.target.send(batch, key)
        if not sent:
            sent.append(key.rpartition(".")[0])
            assert isinstance(world.run(send=failing_after(world.target, 2), epochs=1), Unavailable)

    check_error(world.run(send=send, epochs=1), Fenced, sent[0])
    assert world.run() is None
    world.judge(2)  # the older one had one chunk in hand, the newer one none that was acknowledged


def test_what_is_acknowledged_stays_so_when_an_older_driver_wakes_up(world: World) -> None:
    """Its own chunk, which is behind by then, does not set back what the newer one, which died since,
    was told.
    """
    ended: list[BaseException | None] = []

    def send(batch: Any, key: str) -> None:
        world.target.send(batch, key)
        if not ended:  # the newer one: this chunk again, the other two of its task, and one more
            ended.append(world.run(send=failing_after(world.target, 4), epochs=1))

    assert isinstance(world.run(send=send, epochs=1), Fenced)
    assert isinstance(ended[0], Unavailable)
    assert world.run() is None
    world.judge(1)


def test_a_staging_without_hard_links_is_refused_at_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when a later run takes the sending over, and the rows are decided. Of a guarantee that
    records nothing it needs none.
    """

    def link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    check_error(world.run(), SettingRefused, "FOLDER_HARD_LINKS", world.folder / "wal")
    assert world.target.requests() == []
    make_sink(print).open(new_run(world.folder, Guarantee.AT_LEAST_ONCE), "api")
    monkeypatch.undo()
    assert world.run() is None


def failing_after(target: Target, requests: int) -> Callable[[Any, str], None]:
    left = [requests]

    def send(batch: Any, key: str) -> None:
        if not left[0]:
            raise ConnectionError("the target is down")
        left[0] -= 1
        target.send(batch, key)

    return send


def test_tries_are_bounded_and_the_next_start_goes_on_where_the_last_one_stood(
    world: World,
) -> None:
    """Each restart sends on from the first chunk that is not acknowledged; nothing acknowledged
    is repeated.
    """
    for _ in range(9):
        error = world.run(send=failing_after(world.target, 2))
        assert error is None or isinstance(error, Unavailable)
    assert world.run() is None
    world.judge(0)


def test_a_failed_try_is_repeated_with_the_same_key(world: World) -> None:
    """A target that fails now and then stops nobody; the tries of one chunk have one key."""
    keys: list[str] = []

    def send(batch: Any, key: str) -> None:
        keys.append(key)
        if len(keys) % 3:
            raise TimeoutError("slow today")
        world.target.send(batch, key)

    assert world.run(send=send, tries_max=3) is None
    assert keys[0::3] == keys[1::3] == keys[2::3]
    world.judge(0)


def test_a_target_that_will_never_take_a_row_stops_at_once(world: World) -> None:
    """HeuristicOutcome from send is not tried again."""
    tried: list[str] = []

    def send(batch: Any, key: str) -> None:
        tried.append(key)
        raise HeuristicOutcome("422 Unprocessable: text is too long")

    error = world.run(send=send, tries_max=5)
    check_error(error, HeuristicOutcome, USER_CODE, "422 Unprocessable: text is too long")
    assert len(tried) == 1


async def later() -> None:
    """A coroutine that nobody runs."""


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        pytest.param(lambda: False, ["False (bool)"], id="false"),
        pytest.param(lambda: "<Response [500]>", ["Response [500]", "(str)"], id="a response"),
        pytest.param(Future, ["(Future)"], id="a future"),
        pytest.param(later, ["(coroutine)", "asyncio.run()"], id="async def"),
        pytest.param(lambda: (yield), ["(generator)", "asyncio.run()"], id="yield"),
    ],
)
def test_a_send_that_answers_has_acknowledged_nothing(
    world: World, answer: Callable[[], Any], facts: list[str]
) -> None:
    """Failure that is returned, or a coroutine: nothing is marked as sent, and a corrected send
    sends it all.
    """
    error = world.run(send=lambda batch, key: answer())
    check_error(error, CodeFailed, "SINK_ANSWER", "send()", *facts, " 2 rows")
    assert world.run() is None
    world.judge(0)


def test_under_weaker_guarantees_a_send_that_answers_fails(memory: Path) -> None:
    """There nothing is recorded, and the driver sends as well."""
    run = new_run(memory, Guarantee.AT_LEAST_ONCE)
    opened = make_sink(lambda batch, key: False).open(run, "api")  # type: ignore[arg-type,return-value]
    prepared = TaskJob(opened.writers, [[batches()[0]]])(WriteOrder(run, 0, 0, 1))
    with raised(CodeFailed, "SINK_ANSWER", "send()", "False (bool)"):
        opened.participant.deliver(prepared)


def test_chunks_stay_the_same_when_the_setting_changes(world: World) -> None:
    """Keys name the same rows although the restart has another rows_per_send_max."""
    assert isinstance(world.run(send=failing_after(world.target, 1)), Unavailable)
    assert world.run(rows_per_send_max=100) is None
    world.judge(0)


def test_a_redelivery_days_later_sends_nothing(world: World) -> None:
    """When all is sent and tidied up, the mark of that batch or of a later one says so."""
    assert world.run() is None
    before = world.target.requests()
    world.done = 0
    assert world.run() is None
    assert world.target.requests() == before


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
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    """At once, with the setting's name."""
    with raised(SettingRefused, "WRITE_AHEAD_ARGUMENT", f"{next(iter(settings))}="):
        WriteAheadSink(**{"send": print, **settings})


@pytest.mark.deep
def test_rows_of_more_than_2_gib_under_one_key(memory: Path) -> None:
    """An Arrow array of bytes holds no more: they are sent in more chunks, and none is lost."""
    size = 1_100_000_000
    zeros = pa.py_buffer(np.zeros(size, np.uint8))  # pages that nobody has written to
    ends = pa.py_buffer(np.array([0, size], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, zeros])
    order = WriteOrder(QueryRun("query", new_incarnation(), Guarantee.EXACTLY_ONCE), 0, 0, 1)
    staging = Staging(Folder(memory), Scope("query", "sink"))
    staging.open()
    files, rows = TaskFiles(staging, StagedName.new(order, TaskName(0, 0, 0))), ChunkRows(500)
    for number in range(2):
        rows.write(pa.record_batch({"n": [number], "value": value}), files)
    rows.finish(files)
    (file,) = files.end()
    assert file.rows == 2
