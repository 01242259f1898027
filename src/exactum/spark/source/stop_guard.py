"""A listener that keeps a bounded query to its stop over restarts: rows past it were left out on
purpose.

The batch in which a source reaches its stop may read further, up to where the topic ended; those
rows are filtered out, and the checkpoint lies past them. Another stop, or none, would never read
them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.checkpoint.partition_offsets import Offsets, as_argument, from_json, name_of
from exactum.errors import CheckpointRefused, EpochAborted, Fenced
from exactum.kafka.transaction import Partition
from exactum.protocol.model import Completed
from exactum.protocol.sink import Guarantee, WriteOrder
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.source_options import SourceOptions, Stop
from exactum.spark.source.stop_record import KeptStop, StopRecord


class StopGuard(EpochListener):
    """Compares each source's stop with the one on record when a run begins, and puts it on record
    before the run's first batch is written.
    """

    def __init__(
        self, context: RunContext, sources: Sequence[tuple[RunningSource, StopRecord]]
    ) -> None:
        self._running = context.query
        self._read = context.read
        self._guarantee = context.run.guarantee
        self._sources = tuple(sources)
        self._numbers: list[int] = []
        self._is_on_record = False

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: a record is in a folder that cannot be read.
        """
        if batch.first:
            self._numbers = [record.next_number() for _, record in self._sources]

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """Put the stop of this run on record, with the first batch that it cuts.

        Raises:
            CheckpointRefused: rows between the stop on record and the checkpoint would be lost; or
                as ``StopRecord.add``.
            EpochAborted: another run has put its stop on record meanwhile, and nobody can tell
                which is the newer one.
            Fenced: see ``StopRecord.add``; or another run has brought the batch to its end.
            Unavailable: see ``StopRecord.add``.
        """
        if self._is_on_record:
            return
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            self._refuse_overtaken(batch)
        before = self._refuse_lost(batch)
        for n, (source, record) in enumerate(self._sources):
            stop = SourceOptions.of(source.options).stop
            kept = None if stop is None else kept_from(stop, *before[n])
            record.add(self._numbers[n], kept, batch_id=batch.batch_id, attempt=order.attempt)
        self._is_on_record = True

    def done(self, batch: Batch, completed: Completed) -> None:
        """
        Raises:
            CheckpointRefused: the batch was written by an earlier run, up to another stop, and lies
                past that.
        """
        if completed.written:
            return
        for source, record in self._sources:
            ends = from_json(batch.offsets.end[source.index])
            refuse_lost(str(self._running), source, record.stop(batch.batch_id), ends)

    def _refuse_overtaken(self, batch: Batch) -> None:
        """Where there is no decision log (``NoLog``), nothing fences a run that wakes up late, and
        attempts have no order: its stop must not come behind that of a later run.
        """
        if self._read(f"commits/{batch.batch_id}") is not None:
            raise Fenced(
                f"{self._running}: another run of this query has taken over, and is beyond batch "
                f"{batch.batch_id}. This run stops; nothing of the batch was written."
            )
        if self._numbers != [record.next_number() for _, record in self._sources]:
            raise EpochAborted(
                f"{self._running}: another run of this query has begun batch {batch.batch_id} "
                "meanwhile, with a stop of its own. Let one of them run. Nothing of the batch was "
                "written."
            )

    def _refuse_lost(self, batch: Batch) -> list[tuple[KeptStop | None, Offsets]]:
        """The stop on record before the batch, and where the batch begins, of each source."""
        found = [
            (record.stop(batch.batch_id - 1), self._begins(source, batch))
            for source, record in self._sources
        ]
        for (source, _), (was, begins) in zip(self._sources, found, strict=True):
            refuse_lost(str(self._running), source, was, begins)
        return found

    def _begins(self, source: RunningSource, batch: Batch) -> Offsets:
        if source.index < len(batch.offsets.start):
            return from_json(batch.offsets.start[source.index])
        return initial_offsets(self._read, source)


def kept_from(stop: Stop, was: KeptStop | None, begins: Offsets) -> KeptStop:
    """What a stop leaves out of a query that is given it at ``begins``: nothing below, which stands
    already. ``was`` is the stop on record: where it is the same one, it was given before.
    """
    partitions = stop.offsets.keys() | begins.keys()
    now = {p: _left_out_from(p, stop, was, begins.get(p, 0)) for p in sorted(partitions)}
    # Spark has forgotten a partition that it goes on without, and may see it again.
    forgotten = {} if was is None else was.left_out_from
    return KeptStop(stop, {**forgotten, **now})


def _left_out_from(partition: Partition, stop: Stop, was: KeptStop | None, begins: int) -> int:
    given = stop.offsets.get(partition, 0)
    if was is None:
        return max(given, begins)
    before = was.left_out_from.get(partition, 0)
    if given == was.stop.offsets.get(partition, 0):
        return before
    # One that is not there, or not seen, has no stop now. What it left out is not forgotten.
    return max(given, begins) if partition in stop.offsets else min(before, begins)


def refuse_lost(
    query: str, source: RunningSource, was: KeptStop | None, positions: Offsets
) -> None:
    """Refuse a stop, or none, that is not the one on record, where rows between were left out
    already.

    Of a partition that a stop does not name nothing is read: that is a stop at 0. A stop names
    every partition that is there, so one that it does not name is gone, and has nothing to lose.

    ``query`` names the query in the error, ``was`` is the stop on record up to ``positions``, the
    next offsets that its checkpoint would read.

    Raises:
        CheckpointRefused: rows between the stop on record and ``positions`` would be lost.
    """
    given = SourceOptions.of(source.options).stop
    if was is None:
        return
    past = {
        p: offset
        for p, offset in positions.items()
        if offset > was.left_out_from.get(p, 0)
        and (
            given is None or (p in given.offsets and given.offsets[p] != was.stop.offsets.get(p, 0))
        )
    }
    if past:
        raise CheckpointRefused(_refusal(query, source, was, given, past=past, positions=positions))


def _refusal(
    query: str,
    source: RunningSource,
    was: KeptStop,
    given: Stop | None,
    *,
    past: Offsets,
    positions: Offsets,
) -> str:
    # As read_kafka takes it: with all partitions that are there, and no others.
    there = (positions.keys() | was.stop.offsets.keys()) if given is None else given.offsets.keys()
    rest = {
        p: min(was.left_out_from.get(p, 0), offset) for p, offset in positions.items() if p in there
    }
    lost = ", ".join(
        f"{name_of(p)} from {was.left_out_from.get(p, 0)} to {offset}"
        for p, offset in sorted(past.items())
    )
    now = (
        "no stop"
        if given is None
        else f"another stop ({given.given}: {as_argument(given.offsets)})"
    )
    begun = as_argument({p: was.stop.offsets.get(p, 0) for p in there})
    return (
        f"{query}: source {source.index} was bounded by stop={was.stop.given} at "
        f"{as_argument(was.stop.offsets)}, and its "
        f"checkpoint lies past that: {lost} were left out on purpose. This start has {now} and "
        f"would never read them. To finish what was begun, give stop={begun}. To read on, start a "
        f"new query with a checkpoint location of its own and start={as_argument(rest)}. Nothing "
        "more was written."
    )
