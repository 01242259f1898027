"""``TwoPhaseCommitSink``: who calls what, what errors mean, how handles travel."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from two_phase_commit_sink import JsonFolderSink

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TransactionLost, TwoPhaseCommitSink
from exactum.errors import (
    USER_CODE,
    EpochAborted,
    ExactumError,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.sink import Guarantee
from exactum.testing import TaskJob
from tests.kit.custom.custom_rows import batches
from tests.kit.custom.diary import Diary, failing
from tests.kit.errors import raised
from tests.kit.opened_sink import QUERY, OpenedSink

pytestmark = pytest.mark.slow


@dataclass
class Inner:
    day: date


@dataclass
class Part:
    number: int
    tags: list[str] = field(default_factory=list)
    inner: Inner | None = None


@pytest.fixture
def diary() -> Diary:
    return Diary()


def test_the_calls_of_an_epoch(diary: Diary) -> None:
    """One copy for the task, one for the driver, each connected and closed once; the template is
    never touched.
    """
    one = OpenedSink(diary)
    prepared = TaskJob(one.opened.writers, [list(batches(2))])(one.order(5))
    one.participant.verify(prepared)
    one.commit(one.permit(prepared, 5))
    one.participant.close()
    one.participant.close()
    name = TransactionScope(QUERY, prepared[0].participant).find(prepared[0].identity)
    assert name is not None
    assert (name.batch_id, name.partition_id, name.incarnation) == (5, 0, one.run.incarnation)
    assert diary.calls() == [
        "connect",
        "connect",
        ("begin_transaction", prepared[0].identity),
        ("invoke", 3),
        ("invoke", 3),
        "pre_commit",
        "close",
        "verify",
        ("commit", {"etag": 7}),
        "close",
    ]
    copies = [line[0] for line in diary.lines]
    assert {copies[0]} == set(copies[-3:])
    assert len(set(copies[1:-3])) == 1
    assert id(diary) not in copies
    assert prepared[0].rows == 6


def test_another_run_recovers(diary: Diary) -> None:
    """What another incarnation prepared is committed by recover_and_commit, its leftovers by
    recover_and_abort.
    """
    one, later = OpenedSink(diary), OpenedSink(diary)
    permit = one.permit(one.prepare(*batches(1)))
    prepared = permit.record.prepared
    assert later.commit(permit).committed == prepared
    assert [(s.identity, s.incarnation) for s in later.participant.list_open()] == [
        (prepared[0].identity, one.run.incarnation)
    ]
    later.sweep()
    one.sweep()
    assert [call for call in diary.calls() if "commit" in call[0] or "abort" in call[0]] == [
        ("recover_and_commit", {"etag": 7}),
        ("recover_and_abort", prepared[0].identity),
        ("abort", None),
    ]


def test_a_failing_task_aborts_its_own_before_and_after_pre_commit(diary: Diary) -> None:
    """With what begin gave; and after prepare, when another sink's writer fails, with what
    pre_commit gave.
    """
    one = OpenedSink(diary)
    for prepares in (False, True):
        writer = one.writer()
        writer.write(batches(1)[0])
        if prepares:
            writer.prepare()
        writer.abort()
        writer.abort()
    aborts = [call for call in diary.calls() if call[0] == "abort"]
    assert aborts == [("abort", None), ("abort", {"etag": 7})]
    assert diary.calls().count("connect") == 1 + 3
    assert diary.calls().count("close") == 3


def test_a_partition_without_rows_does_not_even_connect(diary: Diary) -> None:
    """Nothing is opened in the target for nothing."""
    writer = OpenedSink(diary).writer()
    writer.write(batches(1)[0].slice(0, 0))
    assert writer.prepare() is None
    assert diary.calls() == ["connect"]


def test_rejected_rows_are_handed_on_and_not_counted(diary: Diary) -> None:
    """What invoke rejects goes to whoever called the writer."""
    writer = OpenedSink(diary).writer()
    rejection = writer.write(pa.RecordBatch.from_pydict({"text": ["too long", "fits", "fits too"]}))
    assert rejection is not None
    assert rejection.reasons == ("text: too long",)
    prepared = writer.prepare()
    assert prepared is not None
    assert prepared.rows == 2


@pytest.mark.parametrize(
    ("failure", "expected", "facts"),
    [
        (Unavailable("it is down"), Unavailable, ["it is down"]),
        (OutcomeUnknown("no reply"), OutcomeUnknown, ["no reply"]),
        (HeuristicOutcome("look"), HeuristicOutcome, [USER_CODE, "look"]),
        (ConnectionError("reset by peer"), OutcomeUnknown, ["ConnectionError: reset by peer"]),
    ],
)
def test_what_a_commit_may_raise(
    failure: Exception, expected: type[Exception], facts: list[str]
) -> None:
    """Our errors pass; any other one is "nobody knows", with its text, the transaction and the
    sink.
    """
    fail = failing(failure)
    diary = Diary("my-diary", commit=fail, recover_and_commit=fail)
    one = OpenedSink(diary)
    permit = one.permit(one.prepare(*batches(1)))
    if not isinstance(failure, ExactumError):
        facts = ["'my-diary'", permit.record.prepared[0].identity, *facts]
    for driver in (one, OpenedSink(diary)):
        with raised(expected, *facts) as caught:
            driver.commit(permit)
        assert type(caught.value) is expected


def test_a_lost_transaction_stops_the_query_after_the_others_are_committed() -> None:
    """HeuristicOutcome names sink, transaction, rows and what the target said."""

    def loses_the_first() -> None:
        if sum(call[0] == "commit" for call in diary.calls()) == 1:
            raise TransactionLost("404 no such upload")

    diary = Diary("diary", commit=loses_the_first)
    one = OpenedSink(diary)
    permit = one.permit(one.prepare(*batches(2), batch_id=5), 5)
    report = one.commit(permit)
    assert report.expired == permit.record.prepared[:1]
    assert report.committed == permit.record.prepared[1:]
    lost = permit.record.prepared[0].identity
    with raised(
        HeuristicOutcome,
        *("SINK_LOST", "epoch 5", "'diary'", " 3 rows", lost, "404 no such upload"),
    ):
        one.participant.salvage(permit, report.expired)


def test_what_other_methods_may_raise() -> None:
    """Connecting, listing and aborting: Unavailable. The cause is told each time."""
    for method in ("connect", "list_transactions", "recover_and_abort"):
        diary = Diary()
        OpenedSink(diary).prepare(*batches(1))
        diary.answers = {method: failing(ValueError("boom"))}
        with raised(Unavailable, "ValueError: boom"):
            OpenedSink(diary).sweep()


def test_verify_before_the_decision() -> None:
    """A transaction that is gone before the decision voids the epoch, and no more."""
    diary = Diary(verify=failing(TransactionLost("expired")))
    with raised(EpochAborted, "expired"):
        OpenedSink(diary).decide(*batches(1))


def test_weaker_guarantees_commit_in_the_task(diary: Diary) -> None:
    """The task commits by itself, with what pre_commit gave; the driver has nothing to finish."""
    assert OpenedSink(diary, guarantee=Guarantee.AT_LEAST_ONCE).prepare(*batches(1)) == []
    assert diary.calls()[-3:] == ["pre_commit", ("commit", {"etag": 7}), "close"]


def test_a_sink_that_lists_nothing_says_so(memory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator is told at start what is not swept, and by which prefix it can be found."""

    class Silent(JsonFolderSink):
        list_transactions = TwoPhaseCommitSink.list_transactions

    with caplog.at_level(logging.WARNING, "exactum.custom"):
        OpenedSink(JsonFolderSink(memory), name="loud")
        assert caplog.records == []
        one = OpenedSink(Silent(memory), name="silent")
    assert one.participant.list_open() == ()
    assert TransactionScope(QUERY, "silent").prefix in caplog.text
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
    sink = Plain(lambda: given)
    assert (sink.name, sink.rows) == ("Plain", None)
    OpenedSink(sink).write(*batches(1))


def test_dataclasses_travel_by_the_class_in_brackets() -> None:
    """TwoPhaseCommitSink[Part] tells how to read a Part back, and what is in it."""
    OpenedSink(Parts(lambda: Part(3, ["x"], Inner(date(2026, 1, 2))))).write(*batches(1))


@pytest.mark.parametrize(
    "given",
    [
        b"bytes",
        {1: "a number as a key"},
        ("a", "tuple"),
        float("nan"),
        Path("/x"),
        Part(1),
        pytest.param("\ud800", id="half a character"),
    ],
)
def test_a_handle_that_would_not_come_back_is_refused_before_the_decision(given: Any) -> None:
    """In the task, with what to do; not when somebody tries to commit it."""
    with raised(SettingRefused, "SINK_TRANSACTION", repr(given), "serialize()"):
        OpenedSink(Plain(lambda: given)).prepare(*batches(1))


def test_a_class_that_cannot_read_what_it_writes_is_refused_before_the_decision() -> None:
    """One whose own texts bring back something else knows why."""

    class Own(Parts):
        def serialize(self, transaction: Any) -> str:
            return str(transaction.number)

        def deserialize(self, text: str) -> Any:
            return Part(int(text), ["read back"])

    class Wrong(Own):
        def serialize(self, transaction: Any) -> str:
            return "three"

    assert OpenedSink(Own(lambda: Part(3))).prepare(*batches(1))
    with raised(SettingRefused, "SINK_TRANSACTION", "Wrong", "ValueError"):
        OpenedSink(Wrong(lambda: Part(3))).prepare(*batches(1))


def test_a_class_that_cannot_read_old_transactions_is_refused() -> None:
    """After a change of the class, the decided transaction is kept, and the operator is told to
    bring it back.
    """
    one = OpenedSink(Parts(lambda: Part(3)), name="parts")
    permit = one.permit(one.prepare(*batches(1)))

    class Changed(Parts):
        def deserialize(self, text: str) -> Any:
            raise KeyError("etag")

    with raised(SettingRefused, "SINK_CLASS_CHANGED", permit.record.prepared[0].identity):
        OpenedSink(Changed(lambda: Part(3)), name="parts").commit(permit)


def test_rows_stay_on_the_driver(memory: Path) -> None:
    """The user's view function is not pickled, all else is."""
    sink = JsonFolderSink(memory)
    sink._rows = lambda frame: frame
    copied = pickle.loads(pickle.dumps(OpenedSink(sink).opened.writers))
    assert copied.sink.rows is None
    assert copied.sink.folder == memory
    assert sink.rows is not None
