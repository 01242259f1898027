"""The engine-agnostic half of the write job: prefetch, writers, and errors carried through text."""

from __future__ import annotations

import importlib.util
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from exactum import errors
from exactum.errors import InvariantBroken
from exactum.protocol.model import Incarnation, PreparedTransaction, SourceOffsets
from exactum.protocol.sink import Guarantee, QueryRun, Rejection, TaskName, WriteOrder
from exactum.spark.decoding.bad_records import task_of
from exactum.spark.decoding.decode_task import DecodeTask, Decoding
from exactum.spark.live import ranges_of
from exactum.spark.run.batches import input_of
from exactum.spark.write.dead_letter import DeadLetterPlan, _first
from exactum.spark.write.failure import TaskFailed, carried_by, thrown
from exactum.spark.write.prefetch import prefetched
from exactum.spark.write.write_job import CANCELLED, in_our_words
from exactum.spark.write.write_task import (
    WriteTask,
    fingerprint_of,
    prepared_of,
)
from tests.kit.errors import check_error, raised
from tests.kit.python import python

TASK = TaskName(partition_id=3, attempt_number=1, stage_attempt_number=0)
PREPARED = PreparedTransaction("p", "x", 1)
RUN = QueryRun("q", Incarnation("i"), Guarantee.EXACTLY_ONCE)
ORDER = WriteOrder(RUN, 7, 0, 1)


@dataclass
class Recorder:
    """A writer, and its own factory, that records what it is asked."""

    fails_at: str = ""
    refuses: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)

    def open(self, order: WriteOrder, task: TaskName) -> Recorder:
        return self._call("open")

    def write(self, batch: Any) -> Rejection | None:
        self._call("write")
        self.batches.append(batch)
        return Rejection(batch.slice(0, len(self.refuses)), self.refuses) if self.refuses else None

    def prepare(self) -> PreparedTransaction | None:
        self._call("prepare")
        return PREPARED

    def abort(self) -> None:
        self._call("abort")

    def _call(self, step: str) -> Recorder:
        self.calls.append(step)
        if step == self.fails_at:
            raise errors.Unavailable(f"no answer at {step}")
        return self


def batches(*rows: int) -> Iterator[pa.RecordBatch]:
    for n in rows:
        yield pa.RecordBatch.from_pydict({"v": list(range(n))})


def run(*writers: Recorder, source: Iterator[Any]) -> list[pa.RecordBatch]:
    named = tuple((f"w{n}", w) for n, w in enumerate(writers))
    return list(WriteTask(named, RUN).on_behalf_of(ORDER, source))


@pytest.mark.parametrize(
    ("dead", "facts"),
    [
        (None, ("ROWS_REFUSED", "w0", "epoch 7", "v=0 may not be")),
        ("not here either", ("DEAD_LETTERS_REFUSED", "w0", "epoch 7", "not here either")),
    ],
    ids=["no dead letters", "refused again"],
)
def test_rows_that_nobody_takes_stop_the_epoch(dead: str | None, facts: tuple[str, ...]) -> None:
    """A row is never dropped, however often it is refused; everything is aborted."""
    one, two = Recorder(), Recorder(refuses=("v=0 may not be",))
    letters = None if dead is None else Recorder(refuses=(dead,))
    plan = None if letters is None else DeadLetterPlan(letters, ("value", "error"))
    task = WriteTask((("first", one), ("w0", two)), RUN, plan)
    with pytest.raises(TaskFailed) as failed:
        list(task.on_behalf_of(ORDER, batches(2)))
    check_error(carried_by(failed.value), errors.RowsRefused, *facts)
    for each in filter(None, (one, two, letters)):
        assert each.calls == ["open", "write", "abort"]


def test_a_record_that_nobody_can_decode_is_a_row_that_its_sink_refuses() -> None:
    """The job of such records has no other sink: what is prepared is of the dead letters, and they
    may refuse it as well.
    """
    records = pa.record_batch({"value": [b"x", b"y"], "error": ["no number", "too short"]})
    letters = Recorder()
    task = task_of(DeadLetterPlan(letters, ("value", "sink", "error")), ORDER)
    (found,) = task.on_behalf_of(ORDER, iter([records]))
    assert prepared_of(found["prepared"][0].as_py()) == [PREPARED]
    (written,) = letters.batches
    assert written.to_pylist() == [
        {"value": b"x", "sink": "decode", "error": "no number"},
        {"value": b"y", "sink": "decode", "error": "too short"},
    ]
    letters = Recorder(refuses=("too large",))
    task = task_of(DeadLetterPlan(letters, ("value", "error")), ORDER)
    with pytest.raises(TaskFailed) as failed:
        list(task.on_behalf_of(ORDER, iter([records])))
    facts = "DEAD_LETTERS_REFUSED", "decode", "epoch 7", "too large", "max.message.bytes"
    check_error(carried_by(failed.value), errors.RowsRefused, *facts)
    assert letters.calls == ["open", "write", "abort"]


@pytest.mark.parametrize("step", ["open", "write", "prepare"])
def test_a_failing_writer_aborts_all(step: str) -> None:
    """Every writer that was opened is aborted, and the error names the task."""
    sound, failing = Recorder(), Recorder(fails_at=step)
    with raised(TaskFailed, "partition 0", "attempt 0"):
        run(sound, failing, source=batches(1, 1))
    assert sound.calls[-1] == "abort"
    assert ("abort" in failing.calls) == (step != "open")


class Killed(BaseException):
    """What ends a task without being an Exception."""


@pytest.mark.parametrize(
    ("cause", "kind"), [(ValueError("a bad row"), TaskFailed), (Killed("a bad row"), Killed)]
)
def test_an_input_that_ends_before_its_end_aborts(
    cause: BaseException, kind: type[BaseException]
) -> None:
    """An error of the frame's own rows, or the end of the task, which passes through."""

    def source() -> Iterator[Any]:
        yield from batches(1)
        raise cause

    writer = Recorder()
    with raised(kind, "a bad row"):
        run(writer, source=source())
    assert writer.calls == ["open", "write", "abort"], "what came before it was written"
    assert no_thread_left()


def test_a_failing_abort_does_not_hide_the_reason() -> None:
    """The reason comes first, and the other writers are aborted still."""
    bad, sound = Recorder(fails_at="abort"), Recorder()
    failing = Recorder(fails_at="prepare")
    with pytest.raises(TaskFailed) as failed:
        run(bad, sound, failing, source=batches(1))
    assert sound.calls[-1] == failing.calls[-1] == "abort"
    facts = "no answer at prepare", "no answer at abort"
    check_error(carried_by(failed.value), errors.Unavailable, *facts)


def test_prefetch_keeps_order_and_ends_its_thread() -> None:
    """Every item once, in order; asked again at the end, it is still the end."""
    with prefetched(iter(range(100))) as ahead:
        assert list(ahead) == list(range(100))
        assert list(ahead) == []
    assert no_thread_left()


def test_prefetch_is_bounded_and_closes_early() -> None:
    """It takes no more than its depth ahead, and closing it ends the thread though items remain."""
    taken: list[int] = []

    def source() -> Iterator[int]:
        for n in range(1000):
            taken.append(n)
            yield n

    with prefetched(source(), depth_max=4) as ahead:
        next(ahead)
        time.sleep(0.1)
        assert len(taken) <= 7
    assert no_thread_left()


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            errors.FrameRefused("KAFKA_COLUMNS", "no 'value'\nat all"),
            errors.FrameRefused,
            "[KAFKA_COLUMNS] no 'value'\nat all",
        ),
        (ValueError("bad ü"), errors.UnknownFailure, "ValueError: bad ü"),
    ],
)
def test_an_error_crosses_sparks_text(error: Exception, kind: type, message: str) -> None:
    """The class and the message arrive whatever Spark wraps around the text of the traceback."""
    text = f"Job aborted: Task 3 failed\nTraceback\n{TaskFailed.of(error, TASK)}\n\tat org.apache.spark.X\n{{}}"
    carried = carried_by(RuntimeError(text))
    assert type(carried) is kind
    assert str(carried).startswith(f"{message} (in the task of partition 3, attempt 1)")


class GeoDown(errors.Unavailable):
    """An error of a user's, as the module of a sink has it."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is down")


class ShopClosed(errors.RowsRefused):
    """Likewise, with a code."""


@pytest.mark.parametrize(
    ("error", "kind", "facts"),
    [
        (GeoDown("geo", 80), errors.Unavailable, ("geo:80 is down", "partition 3")),
        (ShopClosed("no shop 7"), errors.RowsRefused, ("USER_CODE", "no shop 7", "partition 3")),
    ],
)
def test_a_users_own_error_of_a_kind_arrives_as_that_kind(
    error: Exception, kind: type[errors.ExactumError], facts: tuple[str, ...]
) -> None:
    """The driver knows no class of the user's; what may be done next is that of ours."""
    carried = carried_by(TaskFailed.of(error, TASK))
    assert type(carried) is kind
    check_error(carried, kind, *facts)


@dataclass(frozen=True)
class Broken:
    """A sink whose code raises ``error`` when there are rows."""

    error: Exception

    def open(self, order: WriteOrder, task: TaskName) -> Recorder:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("v"), errors.CodeFailed),
        (OverflowError("date value out of range"), errors.CodeFailed),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), errors.CodeFailed),
        (AttributeError("a"), errors.CodeFailed),
        (pa.ArrowInvalid("i"), errors.CodeFailed),
        (OSError("no space left"), errors.EpochAborted),
        (ConnectionResetError("gone"), errors.EpochAborted),
        (MemoryError(), errors.EpochAborted),
        (type("OperationalError", (Exception,), {})("the server is gone"), errors.EpochAborted),
        (struct.error("unpack requires a buffer of 4 bytes"), errors.CodeFailed),
        (type("DecodeError", (Exception,), {})("wire type 7"), errors.UnknownFailure),
        (RuntimeError("cannot start new thread"), errors.UnknownFailure),
    ],
)
def test_what_a_sinks_code_raises_is_told_apart(
    error: Exception, kind: type[errors.ExactumError]
) -> None:
    """A mistake, or a value that the code cannot take, comes again with the same rows and halts; a
    connection, a disk or memory may be better at the next start, and of another library's error
    nobody knows. What fails where rows are read may be cut off by Spark, and is not known.
    """
    with pytest.raises(TaskFailed) as failed:
        list(WriteTask((("broken", Broken(error)),), RUN).on_behalf_of(ORDER, batches(1)))
    carried = carried_by(failed.value)
    assert type(carried) is kind
    facts = [f"{type(error).__name__}: {error}", "partition 0"]
    if kind is errors.CodeFailed:
        facts = ["CODE_FAILED", *facts, "test_write_task.py:"]
    check_error(carried, kind, *facts)
    with pytest.raises(TaskFailed) as failed:
        list(WriteTask((("broken", Broken(error)),), RUN).on_behalf_of(ORDER, cut_off(error)))
    passing = kind is errors.EpochAborted
    expected = errors.EpochAborted if passing else errors.UnknownFailure
    assert type(carried_by(failed.value)) is expected


def test_what_the_code_of_the_dead_letters_raises_is_told_of_them() -> None:
    """And not of the sink whose rows they were given."""
    plan = DeadLetterPlan(Broken(ValueError("v")), ("value",))
    task = WriteTask((("w0", Recorder(refuses=("no",))),), RUN, plan)
    with pytest.raises(TaskFailed) as failed:
        list(task.on_behalf_of(ORDER, batches(1)))
    facts = "CODE_FAILED", "ValueError: v", "sink 'dead letters'"
    check_error(carried_by(failed.value), errors.CodeFailed, *facts)


LOST = "An error occurred while calling o7.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 14.0 failed 1 times, most recent failure: Lost task 0.0 in stage 14.0 (TID 13) (192.0.2.2 executor driver): "
TRACE = "\n\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n\nDriver stacktrace:\n\tat x.Y(Y.scala:1)"
PYTHON = 'Traceback (most recent call last):\n  File "job.py", line 3, in parsed\n    raise KeyError(x)\n'


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f"{LOST}java.lang.ArithmeticException: / by zero{TRACE}", errors.UnknownFailure, "java.lang.ArithmeticException: / by zero"),
        (f"{LOST}java.net.ConnectException: refused{TRACE}", errors.EpochAborted, "java.net.ConnectException: refused"),
        (f"{LOST}org.apache.spark.SparkException: x{TRACE}\nCaused by: java.io.IOException: disk", errors.EpochAborted, "org.apache.spark.SparkException: x"),
        (f"{LOST}ExecutorLostFailure (executor 2 exited) Reason: killed{TRACE}", errors.EpochAborted, "ExecutorLostFailure"),
        (f"{LOST}org.apache.spark.api.python.PythonException: {PYTHON}KeyError: 'a'\n{TRACE}", errors.UnknownFailure, "KeyError: 'a'"),
        (f"{PYTHON}urllib.error.URLError: <no answer>", errors.EpochAborted, "urllib.error.URLError: <no answer>"),
        (f"{PYTHON}orders.Odd: 7", errors.UnknownFailure, "orders.Odd: 7"),
        (f"{LOST}java.lang.ArithmeticException: long overflow\n\tat java.base/java.lang.Math.multiplyExact(Math.java:1004)\n\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.x(K.scala:1){TRACE}", errors.RowsRefused, "Spark cannot hold the timestamp"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", errors.Fenced, "Spark found the next batch"),
        ("[STREAM_FAILED] Query q terminated with exception: getFileStatus on s3a://b/ck/offsets/3: software.amazon.awssdk.services.s3.model.S3Exception: (Service: S3, Status Code: 400):ExpiredToken: it has expired", errors.Unavailable, "An object store answered with ExpiredToken"),
        # Executors whose exactum knows an error that the driver's does not: a person must look.
        ('exactum-task-failed: {"error": "annotations", "arguments": ["m"]}', errors.SettingRefused, "[EXECUTOR_VERSION] annotations"),
        ("exactum-task-failed: {broken}", None, ""),
        ("boom", None, ""),
        ("Timed out waiting for a node assignment. Call: describeTopics", None, ""),
    ],
)  # fmt: skip
def test_what_spark_says_of_a_task_is_told_apart(
    text: str, kind: type[errors.ExactumError] | None, said: str
) -> None:
    """By the names of what was thrown; what is about no task and no function is Spark's alone."""
    found = thrown(RuntimeError(text))
    assert (None if found is None else type(found)) is kind
    assert found is None or str(found).startswith(said) or said in str(found).partition(",")[0]


CALL = "An error occurred while calling o7.collectToPython.\n: "
GROUP = "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group 5 SQLSTATE: XXKDA"


@pytest.mark.parametrize(
    "text",
    [
        f"{CALL}java.lang.InterruptedException{TRACE}",
        f"{CALL}org.apache.spark.SparkException: {GROUP}{TRACE}",
        f"{CALL}org.apache.spark.SparkException: Job 3 cancelled by the user{TRACE}",
        f"{CALL}java.util.concurrent.ExecutionException: org.apache.spark.SparkException: {GROUP}",
        f"{CALL}org.apache.spark.SparkException: x{TRACE}\nCaused by: java.lang.InterruptedException",
        f"(org.apache.spark.SparkException) {GROUP}",
        "(java.lang.InterruptedException) ",
        GROUP,
    ],
)
def test_a_job_that_spark_cancelled_is_void(text: str) -> None:
    """In the words of each kind of session."""
    with raised(errors.EpochAborted, CANCELLED), in_our_words():
        raise RuntimeError(text)


RANGES = ranges_of(SourceOffsets((None,), ('{"orders":{"0":25}}',)))
of_epoch = partial(in_our_words, lambda: input_of(RANGES))
STOPS = "java.lang.InterruptedException", "Job 7 cancelled", f"x\nCaused by: {GROUP}"


@pytest.mark.parametrize("value", STOPS)
def test_a_row_that_speaks_of_a_cancellation_is_none(value: str) -> None:
    """What a task raised is told with its own class, whatever rows, or a function's error, say."""
    marked = str(TaskFailed.of(errors.RowsRefused("ROWS_REFUSED", f"{value} is too long"), TASK))
    with raised(errors.RowsRefused, "ROWS_REFUSED", value), in_our_words():
        raise RuntimeError(f"{LOST}{PYTHON}{marked}{TRACE}")
    with raised(errors.RowsRefused, "ROWS_REFUSED", value, "orders-0"), of_epoch():
        raise errors.RowsRefused("ROWS_REFUSED", f"{value} is too long")
    for text in (f"{LOST}x.PythonException: {PYTHON}ValueError: {value}{TRACE}", f"bad: {value!r}"):
        with raised(errors.EpochAborted, "Error: "), of_epoch():
            raise RuntimeError(text)


def cut_off(error: Exception) -> Iterator[Any]:
    yield from ()
    raise error


def no_thread_left() -> bool:
    return not [t for t in threading.enumerate() if t.name.startswith("exactum-prefetch")]


def test_a_task_whose_job_has_no_order_writes_nothing() -> None:
    """It could only guess for which epoch it writes."""
    with pytest.raises(InvariantBroken):
        WriteTask((), RUN)(batches(1))


def test_a_refusal_says_each_rule_once() -> None:
    """Many rows by one rule are counted, with the first one's key and place; other rules are
    said beside it.
    """
    rows = pa.record_batch(
        {"topic": ["orders"] * 6, "partition": [0] * 6, "offset": list(range(7, 13))}
    )
    of_key = (
        "the row with id={}: column 'value' (character varying(3)) holds 3 characters, the row "
        "has {}"
    )
    reasons = (
        of_key.format(1, 7), of_key.format(2, 9), of_key.format(3, 4),
        "the row with id=4: column 'n' (integer) must not be null", "no such thing", "no such thing",
    )  # fmt: skip
    assert _first(Rejection(rows, reasons)) == (
        f"{reasons[0]} (topic 'orders', partition 0, offset 7) (2 more by this rule); "
        f"{reasons[3]} (topic 'orders', partition 0, offset 10); "
        "no such thing (topic 'orders', partition 0, offset 11) (1 more by this rule)."
    )
    many = Rejection(rows.select([]), ("a", "b", "c", "d", "d", "e"))
    assert _first(many) == "a; b; c; and 3 more by other rules."


def test_a_decoder_that_fails_says_on_which_records() -> None:
    """A defect of a decoder comes again with the same records: it halts, and names them."""
    records = pa.record_batch(
        {"topic": ["t"] * 3, "partition": [1] * 3, "offset": [7, 8, 9], "value": [b"x"] * 3}
    )
    task = DecodeTask((Decoding("value", lambda: bytes, "no type"),), fail=False, nulls_are_bad=())
    with pytest.raises(TaskFailed) as failed:
        list(task(iter([records])))
    error = "ValueError: No type alias"
    facts = "CODE_FAILED", error, "t-1@7", "t-1@9"
    check_error(carried_by(failed.value), errors.CodeFailed, *facts)


@pytest.mark.parametrize("views", [None, (0, 1)])
def test_the_fingerprint_is_of_what_the_first_writer_sees(views: tuple[int, ...] | None) -> None:
    """However the rows come in batches, and in whatever order; also where nothing is prepared."""

    class Idle(Recorder):
        def prepare(self) -> None:
            return None

    rows = pa.table({"0:a": [1, 2, 2], "1:a": [7, 8, 9], "1?": [True, False, None]})
    writers = (("w0", Idle()), ("w1", Idle()))

    def fingerprint(*slices: pa.Table, hashed: bool = True) -> Any:
        task = WriteTask(writers, RUN, views=views, hashed=hashed)
        given = (batch for some in slices for batch in some.to_batches())
        found = list(task.on_behalf_of(ORDER, given))
        return fingerprint_of(found[0]["prepared"][0].as_py()) if found else None

    whole = fingerprint(rows)
    assert whole.rows == 3
    assert whole == fingerprint(rows.slice(2), rows.slice(0, 1), rows.slice(1, 1))
    assert whole != fingerprint(rows.slice(0, 2))
    assert whole != fingerprint(rows.slice(0, 2), rows.slice(0, 1)), "2 counts twice"
    assert fingerprint(rows.slice(0, 0)) is None
    assert fingerprint(rows, hashed=False) is None


def test_pandas_is_not_imported_for_it() -> None:
    """Arrow would, for a list of Python's own, and each worker would spend 0.3 s of CPU on it."""
    assert importlib.util.find_spec("pandas"), "without it this test could not fail"
    code = (
        "import sys; from exactum.spark.write.write_task import record_batch; record_batch([]); "
        "print('pandas' in sys.modules)"
    )
    assert python(code).stdout.strip() == "False"
