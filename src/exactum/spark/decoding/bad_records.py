"""What a run of a query does about the bad records of its decodings: count what is skipped, write
the dead letters.

``decode`` leaves bad records out and counts them as an observed metric. Only where an epoch has
some, its records are read and decoded a second time: the part of the query's plan below the metric,
which holds this epoch's offsets, is run as a batch, and what it marks as bad is written to the
epoch's dead letters, under the epoch's decision.

Spark counts whenever it executes the decoding, and that is not always once, in the write job. From
4.1 on Spark plans a query without state adaptively, and runs the stages before a shuffle ahead of
calling ``foreachBatch``. A function of the user's may look at the batch first. The write job then
reads what was shuffled or persisted, and counts nothing. A frame that reads the batch twice counts
twice. So a number alone does not say whether the same records were bad each time: for dead letters
their places are summed up beside it, and each leaves a mark, one bit of 63.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactum import events
from exactum.errors import EpochAborted, SettingRefused
from exactum.protocol.model import Completed, PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder, Writer
from exactum.spark.decoding.decode import METRIC_PREFIX, Policy, counts_of
from exactum.spark.decoding.decode_task import BAD
from exactum.spark.jvm.frames import frame_of, unchecked_session
from exactum.spark.query import Batch, EpochListener, Run
from exactum.spark.write import view
from exactum.spark.write.dead_letter import DeadLetterPlan
from exactum.spark.write.write_job import WriteJob
from exactum.spark.write.write_task import WriteTask

if TYPE_CHECKING:
    import pyarrow as pa

SINK = "decode"
"""What stands in a dead letter's ``sink``: none of the query's has refused it."""


@dataclass(frozen=True)
class Bad:
    """So many bad records, the sum of their places, and their marks; 0 where places are not summed
    up.
    """

    number: int = 0
    places: int = 0
    marks: int = 0

    def __sub__(self, other: Bad) -> Bad:
        """What came after ``other``, with the marks of both."""
        return Bad(self.number - other.number, self.places - other.places, self.marks)

    def is_several_times(self, other: Bad) -> bool:
        """Whether this is ``other`` once, or several times over."""
        if not other.number:
            return not self.number
        times, rest = divmod(self.number, other.number)
        return times > 0 and not rest and self.places == times * other.places


@dataclass(frozen=True)
class BadCount:
    """``before``: when the micro-batch came to exactum; ``after``: when it was written."""

    before: Bad
    after: Bad

    @property
    def counted(self) -> Bad:
        """What the write job counted; where that was nothing, what was counted ahead of it."""
        job = self.after - self.before
        return job if job.number else self.after

    def allows(self, found: Bad) -> bool:
        """Whether ``found`` may be all there are. More may be found than were counted: a frame with
        a limit does not execute all of the decoding. All that were counted must be among them, as
        far as marks tell: each was left out of the sinks.
        """
        if self.after.marks & ~found.marks:
            return False
        return found.number > self.counted.number or self.counted.is_several_times(found)


class BadRecords(EpochListener):
    """The decodings of one run of one query: ``CountedBadRecords``, and over Spark Connect
    ``connect.decodings.PlainReads``.
    """

    has_any = False
    """Whether anything is decoded of which bad records are known here."""
    wants_dead_letters = False
    """Whether a decoding sends its bad records to the dead letters."""
    count_once = False
    """True where the batch is to be computed once only, because what it counts is compared."""

    def write(
        self, frame: DataFrame, order: WriteOrder, plan: DeadLetterPlan, *, miscounted: bool
    ) -> list[PreparedTransaction]:
        """Write the epoch's bad records to its dead letters, after its other rows were written.
        ``miscounted``: Spark may have counted too few.

        Raises:
            EpochAborted: fewer, or other, records are bad than were before.
            Exception: Spark's, where a job failed.
        """
        raise NotImplementedError


def refuse_without_dead_letters(run: Run, decodings: BadRecords) -> None:
    """
    Raises:
        SettingRefused: a decoding wants dead letters, and the query has no sink for them.
    """
    if decodings.wants_dead_letters:
        raise SettingRefused(
            "DEAD_LETTERS_MISSING",
            f"{run} decodes with on_error='dead_letter', and has no sink for dead letters. Give "
            "one: exactum.exactly_once(..., dead_letters=exactum.KafkaSink('dead', ...)). Nothing "
            "was written.",
        )


class CountedBadRecords(BadRecords):
    """In a classic session, where Spark's counts and plans are at hand."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._names = set(self._run.execution.metrics_planned(METRIC_PREFIX))
        self._before: dict[str, Bad] = {}
        self._lettered = 0
        self._session: SparkSession | None = None
        self.has_any = bool(self._names)
        self.wants_dead_letters = self.count_once = bool(self._of(Policy.DEAD_LETTER))

    def begin(self, batch: Batch) -> None:
        self._before = self._counts()
        self._lettered = 0

    def done(self, batch: Batch, completed: Completed) -> None:
        about = self._run.about(batch.batch_id)
        bad = self._bad(Policy.SKIP).values() if completed.written else ()
        skipped = sum(count.counted.number for count in bad)
        if skipped:
            self._run.emit(events.RowsSkipped(*about, skipped))
        # Where nothing is prepared, nobody else knows of them.
        if self._lettered and self._run.guarantee is not Guarantee.EXACTLY_ONCE:
            self._run.emit(events.RowsDeadLettered(*about, self._lettered))

    def write(
        self, frame: DataFrame, order: WriteOrder, plan: DeadLetterPlan, *, miscounted: bool
    ) -> list[PreparedTransaction]:
        """See the base class."""
        counted = self._bad(Policy.DEAD_LETTER)
        prepared: list[PreparedTransaction] = []
        execution = self._run.execution
        some = {m: count for m, count in counted.items() if count.counted.number or miscounted}
        for metric, decoded in execution.metrics_named(METRIC_PREFIX) if some else ():
            # A frame that is used twice comes twice. Spark keeps the first stream's count, and this
            # is its plan.
            count = some.pop(metric, None)
            if count is None:
                continue
            with view.read_once(self._letters(frame, decoded)) as kept:
                prepared.extend(WriteJob(task_of(plan, order)).run(kept, order).prepared)
                found = Bad(*kept.agg(*counts_of(f.lit(True))).collect()[0])
            self._refuse_others(found, count, order)
            self._lettered += found.number
        return prepared

    def _refuse_others(self, found: Bad, count: BadCount, order: WriteOrder) -> None:
        if not count.allows(found):
            raise EpochAborted(
                f"{self._run}: {count.counted.number} records of epoch {order.batch_id} were "
                f"bad when they were decoded, and {found.number} when they were decoded again for "
                "the dead letters, and not the same ones, so some would be lost. A schema was "
                "registered in between, a function that decodes is not deterministic, or Spark "
                "repeated a stage. Start the query again: the epoch is read anew. If it ends here "
                "each time, the function of foreachBatch has Spark compute the batch several "
                "times: call batch.persist() before it looks."
            )

    def _letters(self, frame: DataFrame, decoded: Any) -> DataFrame:
        """The bad records of the plan ``decoded``, a decoding in the batch at hand: read again,
        as a batch.

        The plan's source is one that streams, with the offsets of the batch filled in, as Spark
        itself runs it; the check that refuses such a plan outside of a query is switched off in a
        session of our own.
        """
        if self._session is None:
            self._session = unchecked_session(frame.sparkSession)
        found = frame_of(self._session, decoded).filter(f.col(BAD).isNotNull())
        return found.select(
            "topic",
            "partition",
            "offset",
            "timestamp",
            f"{BAD}.key",
            f"{BAD}.value",
            f"{BAD}.error",
        )

    def _of(self, policy: Policy) -> list[str]:
        return sorted(
            name for name in self._names if name.startswith(f"{METRIC_PREFIX}{policy.value}.")
        )

    def _bad(self, policy: Policy) -> dict[str, BadCount]:
        """What each metric of this policy has counted in this batch."""
        names = self._of(policy)
        counts = self._counts() if names else {}
        none = Bad()
        return {n: BadCount(self._before.get(n, none), counts.get(n, none)) for n in names}

    def _counts(self) -> dict[str, Bad]:
        found = self._run.execution.observed(self._names) if self._names else {}
        return {name: Bad(*counts) for name, counts in found.items()}


def task_of(plan: DeadLetterPlan, order: WriteOrder) -> WriteTask:
    """What writes the rows of ``BadRecords._letters`` as dead letters: a bad record is a row that
    its sink refuses.
    """
    return WriteTask(((SINK, Refusing()),), order.run, plan)


class Refusing:
    """A writer, and its own factory, that takes no row. Picklable."""

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return self

    def write(self, batch: pa.RecordBatch) -> Rejection:
        return Rejection(batch, tuple(batch.column("error").to_pylist()))

    def prepare(self) -> None:
        """There is nothing."""

    def abort(self) -> None:
        """There is nothing."""
