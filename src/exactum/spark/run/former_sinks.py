"""What a run puts on record of itself (``checkpoint.query_record``), and the sinks that the query
had and has no longer: what they left open is found again, and swept or named.

A transaction is listed by the name of its sink. A start without that sink, or with a new name for
it, would never look, and a prepared transaction would keep its locks for ever. So a former sink
stays on record until it was found empty.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from exactum import events
from exactum.checkpoint.query_place import recorded_staging
from exactum.checkpoint.query_record import KnownSink, QueryRecord
from exactum.errors import ExactumError
from exactum.protocol.decision_log import DecisionLog, Identified
from exactum.protocol.ends import Noted
from exactum.protocol.model import Completed, Sighting
from exactum.protocol.participant import Sweepable
from exactum.protocol.sink import Guarantee, WriteOrder
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.query import Run
from exactum.spark.run.opened_sinks import OpenedSinks

logger = logging.getLogger("exactum")


class FormerSinks(EpochListener):
    """Finds the sinks of earlier runs, and puts this run's on record before its first task, where
    these may leave something open.
    """

    def __init__(self, run: Run, sinks: OpenedSinks, log: DecisionLog, log_place: str) -> None:
        """``log_place``: where the query's decisions are, without secrets."""
        self._run = run
        self._opened = sinks.each
        self._present = [KnownSink(name, dict(sink.trace)) for name, sink in sinks.each]
        self._log = log
        self._log_place = log_place
        before = [structs.replace(sink, present=True) for sink in run.record.content.sinks]
        self._former = [sink for sink in before if sink.trace and sink not in self._present]
        self._reached: list[tuple[KnownSink, _Reached]] = []

    def reached(self) -> Sequence[Sweepable]:
        """What the former sinks left open that one of this run's sinks reaches; the others are told
        of.
        """
        for former in self._former:
            participant = self._reach(former)
            if participant is None:
                about = self._run.about(self._run.first_batch_id)
                self._run.emit(events.FormerSinkOutOfReach(*about, former.name, former.place))
            else:
                self._reached.append((former, _Reached(participant)))
        return [reached for _, reached in self._reached]

    def _reach(self, former: KnownSink) -> Sweepable | None:
        for _, sink in self._opened:
            try:
                participant = sink.reach(former.name, former.trace)
            except ExactumError as error:
                logger.warning(
                    "the former sink %r (%s) could not be looked at: %s",
                    former.name,
                    former.place,
                    error,
                )
                continue
            if participant is not None:
                return participant
        return None

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """From here on tasks may leave something open, and the batch may be
        decided. Or it is written without a decision: not with the first batch alone, for that one
        may be decided, and is committed again.
        """
        noted = self._run.record.content.noted
        counts = noted.first is not None and noted.undecided_from is None
        if order.run.guarantee is Guarantee.AT_LEAST_ONCE and counts:
            noted = replace(noted, undecided_from=batch.batch_id)
            self._run.record.change(lambda record: structs.replace(record, noted=noted))
        if batch.first:
            self._put_on_record(noted if counts else Noted(first=batch.batch_id))

    def done(self, batch: Batch, completed: Completed) -> None:
        """The run's first batch is decided: not before it is, so that a start which dies before its
        first record leaves no promise. A former sink that the start found empty is forgotten.
        """
        if not batch.first:
            return
        noted = self._run.record.content.noted
        if noted.first is None or noted.undecided_from is not None:  # decided by an earlier run
            noted = Noted(first=batch.batch_id)
        empty = [former for former, reached in self._reached if reached.was_empty]
        self._former = [sink for sink in self._former if sink not in empty]
        self._put_on_record(replace(noted, decided=batch.batch_id))

    def close(self) -> None:
        for _, reached in self._reached:
            reached.close()

    def _put_on_record(self, noted: Noted) -> None:
        """Another guarantee than exactly once says nothing of sinks and decisions: what is on
        record of these holds for the run that comes after it.
        """
        run = self._run
        staging = recorded_staging(run, run.identity.staging)
        log_id = self._log.log_id() if isinstance(self._log, Identified) else None

        def changed(record: QueryRecord) -> QueryRecord:
            if log_id is not None:
                record = structs.replace(record, decision_log=self._log_place, log_id=log_id)
            if run.guarantee is not Guarantee.EXACTLY_ONCE:
                return record
            former = [structs.replace(sink, present=False) for sink in self._former]
            sinks = (*self._present, *former)
            return structs.replace(record, sinks=sinks, noted=noted, staging=staging)

        self._run.record.change(changed)


class _Reached:
    """What a former sink left open, and whether that was nothing when the start looked.

    Where it cannot be listed, this is logged and stops nobody: the target may have been taken down
    with its sink.
    """

    def __init__(self, participant: Sweepable) -> None:
        self.name = participant.name
        self.abort = participant.abort
        self.close = participant.close
        self.was_empty = False
        self._participant = participant

    def list_open(self) -> Sequence[Sighting]:
        try:
            seen = self._participant.list_open()
        except ExactumError as error:
            logger.warning(
                "what the former sink %r left open could not be listed: %s", self.name, error
            )
            return ()
        self.was_empty = not seen
        return seen
