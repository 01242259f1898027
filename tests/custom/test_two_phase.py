"""``TwoPhaseCommitSink``: who calls what, what errors mean, how handles travel; the check finds
broken classes.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from two_phase_commit_sink import JsonFolderSink, sync

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TransactionLost, TwoPhaseCommitSink
from exactum.errors import (
    EpochAborted,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.model import (
    CommitPermit,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    new_incarnation,
)
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Rejection, TaskName, WriteOrder
from exactum.testing import TaskJob, check_two_phase_commit_sink
from exactum.testing.memory import permit_of
from tests.kit.custom.custom_rows import batches, empty, published
from tests.kit.errors import raised

pytestmark = pytest.mark.slow

QUERY = "5f1c9a3e-9f10-4c5e-8d5a-1f1de6c0b7aa"


@dataclass
class Part:
    number: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Upload:
    name: str
    part: dict[str, int] | None = None


class Diary(TwoPhaseCommitSink[Upload]):
    """Notes each call in a file, as lines of (which copy, method, rest); its transactions are
    kept nowhere.
    """

    def __init__(self, file: Path, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.file = file
        self.fail: dict[str, Exception] = {}

    def note(self, method: str, *rest: object) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps([id(self), method, *rest]) + "\n")
        if method in self.fail:
            raise self.fail[method]

    def connect(self) -> None:
        self.note("connect")

    def close(self) -> None:
        self.note("close")

    def begin_transaction(self, name: TransactionName) -> Upload:
        self.note("begin_transaction", str(name))
        return Upload(str(name))

    def invoke(self, transaction: Upload, batch: Any) -> Rejection | None:
        self.note("invoke", batch.num_rows)
        if "too long" in batch.column("text").to_pylist():
            return Rejection(batch.slice(0, 1), ("text: too long",))
        return None

    def pre_commit(self, transaction: Upload) -> Upload:
        self.note("pre_commit")
        return Upload(transaction.name, {"etag": 7})

    def commit(self, transaction: Upload) -> None:
        self.note("commit", transaction.part)

    def abort(self, transaction: Upload) -> None:
        self.note("abort", transaction.part)

    def recover_and_commit(self, transaction: Upload) -> None:
        self.note("recover_and_commit", transaction.part)

    def recover_and_abort(self, transaction: Upload) -> None:
        self.note("recover_and_abort", transaction.name)

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, Upload]]:
        self.note("list_transactions", scope.prefix)
        begun = [line[2] for line in self.lines() if line[1] == "begin_transaction"]
        return [(name, Upload(name)) for name in [*begun, "somebody-elses"]]

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def calls(self) -> list[Any]:
        return [line[1] if len(line) == 2 else tuple(line[1:]) for line in self.lines()]


def run_of(guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> QueryRun:
    return QueryRun(QUERY, new_incarnation(), guarantee)


def prepare(opened: OpenSink, run: QueryRun, *given: Any) -> Sequence[PreparedTransaction]:
    return TaskJob(opened.writers, [[b] for b in given or batches(1)])(WriteOrder(run, 5, 0, 1))


def permit(run: QueryRun, prepared: Sequence[PreparedTransaction]) -> CommitPermit:
    return permit_of(
        DecisionRecord(Epoch(QUERY, 5), 0, Decision.COMMIT, run.incarnation, tuple(prepared))
    )


def test_the_calls_of_an_epoch(folder: Path) -> None:
    """One copy for the task, one for the driver, each connected and closed once; the template is
    never touched.
    """
    diary, run = Diary(folder / "diary"), run_of()
    opened = diary.open(run, "diary")
    prepared = TaskJob(opened.writers, [list(batches(2))])(WriteOrder(run, 5, 0, 1))
    opened.participant.verify(prepared)
    opened.participant.commit(permit(run, prepared), prepared)
    opened.participant.close()
    opened.participant.close()
    name = TransactionName.parse(prepared[0].identity)
    assert name is not None
    assert (name.batch_id, name.partition_id, name.incarnation) == (5, 0, run.incarnation)
    assert diary.calls() == [
        "connect",
        "connect",
        ("begin_transaction", prepared[0].identity),
        ("invoke", 3),
        ("invoke", 3),
        "pre_commit",
        "close",
        ("commit", {"etag": 7}),
        "close",
    ]
    copies = [line[0] for line in diary.lines()]
    assert copies[0] == copies[-1] == copies[-2]
    assert len(set(copies[1:-2])) == 1
    assert id(diary) not in copies
    assert prepared[0].rows == 6


def test_another_run_recovers(folder: Path) -> None:
    """What another incarnation prepared is committed by recover_and_commit, its leftovers by
    recover_and_abort.
    """
    diary, run = Diary(folder / "diary"), run_of()
    opened = diary.open(run, "diary")
    prepared = prepare(opened, run)
    later = diary.open(run_of(), "diary").participant
    report = later.commit(permit(run, prepared), prepared)
    assert report.committed == tuple(prepared)
    sightings = later.list_open()
    assert [(s.identity, s.incarnation) for s in sightings] == [
        (prepared[0].identity, run.incarnation)
    ]
    later.abort(sightings)
    opened.participant.abort(opened.participant.list_open())
    assert [call for call in diary.calls() if "commit" in call[0] or "abort" in call[0]] == [
        ("recover_and_commit", {"etag": 7}),
        ("recover_and_abort", prepared[0].identity),
        ("abort", None),
    ]


def test_a_failing_task_aborts_its_own_before_and_after_pre_commit(folder: Path) -> None:
    """With what begin gave; and after prepare, when another sink's writer fails, with what
    pre_commit gave.
    """
    diary, run = Diary(folder / "diary"), run_of()
    writers = diary.open(run, "diary").writers
    for prepares in (False, True):
        writer = writers.open(WriteOrder(run, 5, 0, 1), TaskName(0, 0, 0))
        writer.write(batches(1)[0])
        if prepares:
            writer.prepare()
        writer.abort()
        writer.abort()
    aborts = [call for call in diary.calls() if call[0] == "abort"]
    assert aborts == [("abort", None), ("abort", {"etag": 7})]
    assert diary.calls().count("connect") == 1 + 3
    assert diary.calls().count("close") == 3


def test_a_partition_without_rows_does_not_even_connect(folder: Path) -> None:
    """Nothing is opened in the target for nothing."""
    diary, run = Diary(folder / "diary"), run_of()
    writer = diary.open(run, "diary").writers.open(WriteOrder(run, 5, 0, 1), TaskName(0, 0, 0))
    writer.write(batches(1)[0].slice(0, 0))
    assert writer.prepare() is None
    assert diary.calls() == ["connect"]


def test_rejected_rows_are_handed_on_and_not_counted(folder: Path) -> None:
    """What invoke rejects goes to whoever called the writer."""
    diary, run = Diary(folder / "diary"), run_of()
    writer = diary.open(run, "diary").writers.open(WriteOrder(run, 5, 0, 1), TaskName(0, 0, 0))
    rejection = writer.write(pa.RecordBatch.from_pydict({"text": ["too long", "fits", "fits too"]}))
    assert rejection is not None
    assert rejection.reasons == ("text: too long",)
    prepared = writer.prepare()
    assert prepared is not None
    assert prepared.rows == 2


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (Unavailable("it is down"), Unavailable, "it is down"),
        (OutcomeUnknown("no reply"), OutcomeUnknown, "no reply"),
        (HeuristicOutcome("look"), HeuristicOutcome, "look"),
        (ConnectionError("reset by peer"), OutcomeUnknown, "ConnectionError: reset by peer"),
    ],
)
def test_what_a_commit_may_raise(
    folder: Path, raised: Exception, expected: type[Exception], text: str
) -> None:
    """Our errors pass; any other one is "nobody knows", with its text, the transaction and the
    sink.
    """
    diary, run = Diary(folder / "diary"), run_of()
    diary.fail = {"commit": raised, "recover_and_commit": raised}
    opened = diary.open(run, "my-diary")
    prepared = prepare(opened, run)
    for participant in (opened.participant, diary.open(run_of(), "my-diary").participant):
        with pytest.raises(expected) as caught:
            participant.commit(permit(run, prepared), prepared)
        assert type(caught.value) is expected
        assert text in str(caught.value)
        if not isinstance(raised, (Unavailable, OutcomeUnknown, HeuristicOutcome)):
            assert prepared[0].identity in str(caught.value)
            assert "my-diary" in str(caught.value)


def test_a_lost_transaction_stops_the_query_after_the_others_are_committed(folder: Path) -> None:
    """HeuristicOutcome names sink, transaction, rows and what the target said."""
    run = run_of()

    class LosesTheFirst(Diary):
        def commit(self, transaction: Upload) -> None:
            super().commit(transaction)
            if sum(call[0] == "commit" for call in self.calls()) == 1:
                raise TransactionLost("404 no such upload")

    diary = LosesTheFirst(folder / "diary")
    participant = diary.open(run, "diary").participant
    prepared = prepare(diary.open(run, "diary"), run, *batches(2))
    report = participant.commit(permit(run, prepared), prepared)
    assert report.expired == tuple(prepared[:1])
    assert report.committed == tuple(prepared[1:])
    with raised(HeuristicOutcome, "SINK_LOST", "404 no such upload") as caught:
        participant.salvage(permit(run, prepared), report.expired)
    for text in ("diary", prepared[0].identity, "3 rows", "epoch 5"):
        assert text in str(caught.value)


def test_what_other_methods_may_raise(folder: Path) -> None:
    """Connecting, listing and aborting: Unavailable; verifying: the epoch is aborted. The cause
    is told each time.
    """
    run = run_of()
    for method, expected in (
        ("connect", Unavailable),
        ("list_transactions", Unavailable),
        ("abort", Unavailable),
    ):
        diary = Diary(folder / method)
        opened = diary.open(run, "diary") if method != "connect" else None
        prepared = prepare(opened, run) if opened is not None else ()
        diary.fail = {method: ValueError("boom")}
        with raised(expected, "ValueError: boom"):
            _start_and_sweep(diary, run)
        assert all(p.rows == 3 for p in prepared)


def _start_and_sweep(diary: Diary, run: QueryRun) -> None:
    participant = diary.open(run, "diary").participant
    participant.abort(participant.list_open())


def test_verify_before_the_decision(folder: Path) -> None:
    """A transaction that is gone before the decision voids the epoch, and no more."""

    class Strict(Diary):
        def verify(self, transaction: Upload) -> None:
            raise TransactionLost("expired")

    run = run_of()
    opened = Strict(folder / "diary").open(run, "diary")
    with raised(EpochAborted, "expired"):
        opened.participant.verify(prepare(opened, run))


def test_weaker_guarantees_commit_in_the_task(folder: Path) -> None:
    """The task commits by itself, with what pre_commit gave; the driver has nothing to finish."""
    diary, run = Diary(folder / "diary"), run_of(Guarantee.AT_LEAST_ONCE)
    assert prepare(diary.open(run, "diary"), run) == ()
    assert diary.calls()[-3:] == ["pre_commit", ("commit", {"etag": 7}), "close"]


def test_a_sink_that_lists_nothing_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator is told at start what is not swept, and by which prefix it can be found."""

    class Silent(JsonFolderSink):
        list_transactions = TwoPhaseCommitSink.list_transactions

    with caplog.at_level(logging.WARNING, "exactum.custom"):
        JsonFolderSink(folder).open(run_of(), "loud")
        assert caplog.records == []
        opened = Silent(folder).open(run_of(), "silent")
    assert opened.participant.list_open() == ()
    assert f"exactum.{QUERY}.silent." in caplog.text
    assert "list_transactions" in caplog.text


# ---- handles -------------------------------------------------------------------------------------


class Plain(TwoPhaseCommitSink[Any]):
    """Its transaction is whatever ``given`` makes."""

    def __init__(self, given: Callable[[], Any]) -> None:
        self.given = given

    def begin_transaction(self, name: TransactionName) -> Any:
        return self.given()

    def invoke(self, transaction: Any, batch: Any) -> None:
        """Nowhere."""

    def pre_commit(self, transaction: Any) -> None:
        """Nothing."""

    def commit(self, transaction: Any) -> None:
        assert transaction == self.given(), transaction

    def abort(self, transaction: Any) -> None:
        """Nothing."""


class Parts(Plain, TwoPhaseCommitSink[Part]):
    """With a dataclass."""


@pytest.mark.parametrize(
    "given", ["text", "", 7, None, ["a", 1.5], {"key": {"deep": [True, None]}}, "ü\n"]
)
def test_json_values_travel_as_they_are(given: Any) -> None:
    """Text, numbers, lists, dictionaries: commit is given what begin gave. `super().__init__` is
    optional.
    """
    run = run_of()
    sink = Plain(lambda: given)
    assert (sink.name, sink.rows) == ("Plain", None)
    opened = sink.open(run, "plain")
    prepared = prepare(opened, run)
    assert opened.participant.commit(permit(run, prepared), prepared).committed == tuple(prepared)


def test_dataclasses_travel_by_the_class_in_brackets() -> None:
    """TwoPhaseCommitSink[Part] tells how to read a Part back."""
    run = run_of()
    opened = Parts(lambda: Part(3, ["x"])).open(run, "parts")
    prepared = prepare(opened, run)
    assert opened.participant.commit(permit(run, prepared), prepared).committed == tuple(prepared)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"bytes", "JSON"),
        ({1: "a number as a key"}, "read back"),
        (("a", "tuple"), "read back"),
        (float("nan"), "JSON"),
        (Path("/x"), "JSON"),
        (Part(1), "TwoPhaseCommitSink[Part]"),
    ],
)
def test_a_handle_that_would_not_come_back_is_refused_before_the_decision(
    given: Any, text: str
) -> None:
    """In the task, with what to do; not when somebody tries to commit it."""
    run = run_of()
    with raised(SettingRefused, "SINK_TRANSACTION", text):
        prepare(Plain(lambda: given).open(run, "plain"), run)


def test_a_class_that_cannot_read_old_transactions_is_refused(folder: Path) -> None:
    """After a change of the class, the decided transaction is kept, and the operator is told to
    bring it back.
    """
    run = run_of()
    prepared = prepare(Parts(lambda: Part(3)).open(run, "parts"), run)

    class Changed(Parts):
        def deserialize(self, text: str) -> Any:
            raise KeyError("etag")

    with raised(SettingRefused, "SINK_CLASS_CHANGED", prepared[0].identity):
        Changed(lambda: Part(3)).open(run, "parts").participant.commit(
            permit(run, prepared), prepared
        )


def test_rows_stay_on_the_driver(folder: Path) -> None:
    """The user's view function is not pickled, all else is."""
    sink = JsonFolderSink(folder)
    sink._rows = lambda frame: frame
    copied = pickle.loads(pickle.dumps(sink.open(run_of(), "x").writers))
    assert copied.sink.rows is None
    assert copied.sink.folder == folder
    assert sink.rows is not None


# ---- the check finds what is broken --------------------------------------------------------------


class RepeatsFail(JsonFolderSink):
    def commit(self, transaction: str) -> None:
        self._staged(transaction).rename(self._published(transaction))


class AbortsCommitted(JsonFolderSink):
    def abort(self, transaction: str) -> None:
        super().abort(transaction)
        self._published(transaction).unlink(missing_ok=True)


class ShowsAtPreCommit(JsonFolderSink):
    def pre_commit(self, transaction: str) -> None:
        super().pre_commit(transaction)
        self.commit(transaction)


class CopiesAtCommit(JsonFolderSink):
    """Not idempotent after a crash in the middle: append, then remove."""

    def commit(self, transaction: str) -> None:
        if self._staged(transaction).exists():
            with (self.folder / "all.jsonl").open("a") as file:
                file.write(self._staged(transaction).read_text())
            self._remove(transaction)
        sync(self.folder)

    def _remove(self, transaction: str) -> None:
        """Forgets to."""


class HidesLoss(JsonFolderSink):
    def commit(self, transaction: str) -> None:
        if self._staged(transaction).exists():
            super().commit(transaction)


class ListsByPrefix(JsonFolderSink):
    """Takes names of sinks that begin alike for its own, by saying that they are."""

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[Any, str]]:
        for path in self.temporary.iterdir():
            name = TransactionName.parse(path.name.removesuffix(".jsonl"))
            if name is not None and name.participant.startswith(scope.participant):
                yield str(name).replace(name.scope.prefix, scope.prefix), str(name)


class BackToLife(JsonFolderSink):
    """What was aborted is written, and published, all the same."""

    def commit(self, transaction: str) -> None:
        if not self._published(transaction).exists():
            self._published(transaction).write_text('{"n": 0, "text": "row 0/0"}\n')
        self.abort(transaction)


class KeepsInMemory(JsonFolderSink):
    """Writes at commit what only the task's own copy knows."""

    kept: list[Any]

    def begin_transaction(self, name: TransactionName) -> str:
        self.kept = []
        return super().begin_transaction(name)

    def invoke(self, transaction: str, batch: Any) -> None:
        self.kept = [*self.kept, batch]

    def commit(self, transaction: str) -> None:
        for batch in getattr(self, "kept", []):
            super().invoke(transaction, batch)
        super().commit(transaction)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "broken",
    [
        RepeatsFail,
        AbortsCommitted,
        ShowsAtPreCommit,
        CopiesAtCommit,
        HidesLoss,
        ListsByPrefix,
        BackToLife,
        KeepsInMemory,
    ],
)
def test_the_check_finds_broken_classes(folder: Path, broken: type[JsonFolderSink]) -> None:
    """Each in its own way: the one line fails."""
    with pytest.raises(AssertionError) as found:
        check_two_phase_commit_sink(
            lambda: broken(folder),
            lambda: published(folder),
            batches,
            reset=lambda: empty(folder),
            visible_within_s=0,
        )
    print(broken.__name__, "->", str(found.value)[:200])
