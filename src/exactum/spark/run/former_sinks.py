"""Sinks that a query had and has no longer: what they left open is found again, and swept or named.

    <checkpoint>/exactum/sinks.json     the sinks of the last run, and former ones that were not
                                        found empty since

A transaction is listed by the name of its sink. A start without that sink, or with a new name for
it, would never look, and a prepared transaction would keep its locks for ever. The file also says
where decisions stand, and from which batch on: see ``protocol.ends``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from exactum import events
from exactum.checkpoint.known_sinks import KnownSink, KnownSinks, write_known_sinks
from exactum.checkpoint.layout import SINKS
from exactum.checkpoint.staging_place import recorded_staging
from exactum.errors import ExactumError
from exactum.protocol.ends import NOTHING_NOTED, Noted
from exactum.protocol.model import Completed, Sighting
from exactum.protocol.participant import Sweepable
from exactum.protocol.sink import Guarantee, WriteOrder
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run.moved_log import read_before
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")


class FormerSinks(EpochListener):
    """Finds the sinks of earlier runs, and remembers this run's before its first task, where these
    may leave something open. Does nothing where the checkpoint is on no file system of ours.
    """

    def __init__(
        self, context: RunContext, sinks: OpenedSinks, log_place: str, noted: Noted
    ) -> None:
        """``log_place``: where the query's decisions are, without secrets; ``noted``: what is on
        file of them.
        """
        self._context = context
        self._opened = sinks.each
        self._present = [KnownSink(name, dict(sink.trace)) for name, sink in sinks.each]
        self._log_place = log_place
        self._folder = context.query.folder
        self._is_remembered = context.run.guarantee is Guarantee.EXACTLY_ONCE
        self._known = known = self._on_file()
        before = () if known is None else known.sinks
        self._former = [sink for sink in before if sink.trace and sink not in self._present]
        is_there = known is not None and known.decision_log == log_place
        self._noted = noted if is_there else NOTHING_NOTED
        self._reached: list[tuple[KnownSink, _Reached]] = []

    def reached(self) -> Sequence[Sweepable]:
        """What the former sinks left open that one of this run's sinks reaches; the others are told
        of.
        """
        for former in self._former:
            participant = self._reach(former)
            if participant is None:
                about = self._context.about(self._context.first_batch_id)
                self._context.emit(events.FormerSinkOutOfReach(*about, former.name, former.place))
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

    def begin(self, batch: Batch) -> None:
        """See the base class. From here on tasks may leave something open."""
        if batch.first and self._is_remembered:
            self._remember()

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """See the base class. From here on the batch may be decided, where no other start would
        look for it: the log of an earlier run, given again, has an ABORT of it at most. Or it is
        written without a decision.
        """
        begun = self._noted.first is not None and self._noted.undecided_from is None
        if batch.first and self._is_remembered and not begun:
            self._noted = Noted(first=batch.batch_id)
            self._remember()
        # Not with the first batch alone: that one may be decided, and is committed again.
        if order.run.guarantee is Guarantee.AT_LEAST_ONCE and begun and self._known is not None:
            self._noted = replace(self._noted, undecided_from=batch.batch_id)
            self._write(replace(self._known, noted=self._noted))

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class. The batch is decided: not before it is, so that a start which dies
        before its first record leaves no promise. A former sink that the start found empty is
        forgotten.
        """
        if not batch.first or not self._is_remembered:
            return
        first = self._noted.first
        if first is None or self._noted.undecided_from is not None:  # decided by an earlier run
            self._noted = Noted(first=batch.batch_id)
        self._noted = replace(self._noted, decided=batch.batch_id)
        empty = [former for former, reached in self._reached if reached.was_empty]
        self._former = [sink for sink in self._former if sink not in empty]
        self._remember()

    def close(self) -> None:
        """See the base class."""
        for _, reached in self._reached:
            reached.close()

    # ---- the file ----------------------------------------------------------------------------

    def _on_file(self) -> KnownSinks | None:
        """What is on file of this query; a fork has another id, and its origin's sinks are not its
        own.
        """
        try:
            return read_before(self._context)
        except (OSError, ValueError) as error:
            logger.warning(
                "%s: %s cannot be read (%s): what sinks left open that this query has no longer is "
                "not looked for, nor whether its decision log or a database has gone back",
                self._context.query,
                SINKS,
                error,
            )
            return None

    def _remember(self) -> None:
        self._write(
            KnownSinks(
                self._context.run.query_id,
                (*self._present, *self._former),
                frozenset(sink.name for sink in self._present),
                self._log_place,
                self._noted,
                recorded_staging(self._context.query, self._context.run.staging),
            )
        )

    def _write(self, known: KnownSinks) -> None:
        if self._folder is None or known.to_text() == self._text():
            return
        try:
            write_known_sinks(self._folder, known)
        except OSError as error:
            logger.warning(
                "%s cannot be written (%s): if one of this query's sinks is removed or renamed "
                "later, what its tasks left open will not be looked for",
                self._folder / SINKS,
                error,
            )

    def _text(self) -> str | None:
        try:
            return (self._folder / SINKS).read_text() if self._folder is not None else None
        except (OSError, ValueError):
            return None


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
