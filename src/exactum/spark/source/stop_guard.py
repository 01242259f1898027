"""A listener that keeps a bounded query to its stop over restarts: rows past it were left out on
purpose.

The batch in which a source reaches its stop may read further, up to where the topic ended; those
rows are filtered out, and the checkpoint lies past them. Another stop, or none, would never read
them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.checkpoint.partition_offsets import Offsets, as_argument, from_json, name_of
from exactum.errors import CheckpointRefused
from exactum.protocol.epoch_protocol import Completed
from exactum.protocol.sink import WriteOrder
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.source_options import SourceOptions, Stop
from exactum.spark.source.stop_record import StopRecord


class StopGuard(EpochListener):
    """Compares each source's stop with the one on record when a run begins, and puts it on record
    before the run's first batch is written.
    """

    def __init__(
        self, context: RunContext, sources: Sequence[tuple[RunningSource, StopRecord]]
    ) -> None:
        self._running = context.query
        self._read = context.read
        self._sources = tuple(sources)
        self._numbers: list[int] = []
        self._is_on_record = False

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: rows between the stop on record and the checkpoint would be lost.
        """
        if not batch.first:
            return
        for source, record in self._sources:
            was = record.stop(batch.batch_id - 1)
            refuse_lost(str(self._running), source, was, self._begins(source, batch))
        self._numbers = [record.next_number() for _, record in self._sources]

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """Put the stop of this run on record, with the first batch that it cuts.

        Raises:
            Fenced, CheckpointRefused, Unavailable: see ``StopRecord.add``.
        """
        if self._is_on_record:
            return
        for (source, record), number in zip(self._sources, self._numbers, strict=True):
            stop = _reached_from(SourceOptions.of(source.options).stop, self._begins(source, batch))
            record.add(number, stop, batch_id=batch.batch_id, attempt=order.attempt)
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

    def _begins(self, source: RunningSource, batch: Batch) -> Offsets:
        if source.index < len(batch.offsets.start):
            return from_json(batch.offsets.start[source.index])
        return initial_offsets(self._read, source)


def _reached_from(stop: Stop | None, begins: Offsets) -> Stop | None:
    """What a stop leaves out of a query that begins there: nothing below, which stands already."""
    if stop is None:
        return None
    offsets = {p: max(offset, begins.get(p, offset)) for p, offset in stop.offsets.items()}
    return Stop(stop.given, offsets)


def refuse_lost(query: str, source: RunningSource, was: Stop | None, positions: Offsets) -> None:
    """Refuse a stop, or none, that is not the one on record, where rows between were left out
    already.

    ``query`` names the query in the error, ``was`` is the stop on record up to ``positions``, the
    next offsets that its checkpoint would read.

    Raises:
        CheckpointRefused: rows between the stop on record and ``positions`` would be lost.
    """
    given = SourceOptions.of(source.options).stop
    if was is None or (given is not None and given.offsets == was.offsets):
        return
    past = {p: offset for p, offset in positions.items() if offset > was.offsets.get(p, 0)}
    if past:
        raise CheckpointRefused(_refusal(query, source, was, given, past=past, positions=positions))


def _refusal(
    query: str,
    source: RunningSource,
    was: Stop,
    given: Stop | None,
    *,
    past: Offsets,
    positions: Offsets,
) -> str:
    rest = {p: was.offsets.get(p, 0) for p in positions}
    lost = ", ".join(
        f"{name_of(p)} from {was.offsets.get(p, 0)} to {offset}"
        for p, offset in sorted(past.items())
    )
    now = (
        "no stop"
        if given is None
        else f"another stop ({given.given}: {as_argument(given.offsets)})"
    )
    begun = as_argument(was.offsets)
    return (
        f"{query}: source {source.index} was bounded by stop={was.given} at {begun}, and its "
        f"checkpoint lies past that: {lost} were left out on purpose. This start has {now} and "
        f"would never read them. To finish what was begun, give stop={begun}. To read on, start a "
        f"new query with a checkpoint location of its own and start={as_argument(rest)}. Nothing "
        "more was written."
    )
