"""What a run does around its first micro-batch: it says what it is and where it goes on, compares
its settings and its sinks with those of the run before, and puts its own on record.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from exactum import events
from exactum.checkpoint.offset_log import OFFSETS, source_offsets
from exactum.checkpoint.query_place import recorded_staging
from exactum.checkpoint.query_record import KnownSink, QueryRecord
from exactum.errors import ExactumError
from exactum.protocol.decision_log import DecisionLog, Identified
from exactum.protocol.ends import Noted, recent
from exactum.protocol.model import Completed, Sighting
from exactum.protocol.participant import Sweepable
from exactum.protocol.resolve import commits_in_force, refuse_other_offsets
from exactum.protocol.sink import Guarantee
from exactum.spark.event_log import watchers
from exactum.spark.jvm.java_class import JvmError
from exactum.spark.query import ENDING_TRIGGERS, Batch, EpochListener, Run
from exactum.spark.run.housekeeping import Attending
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.source.bounds import stops_of
from exactum.spark.source.options import Subscription

logger = logging.getLogger("exactum")

INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
"""How Spark prints the trigger of a query that begins its micro-batches so many ms apart."""
VERSION_EVERY_MS = 2_000
"""A table whose versions come more often is worth a word."""
DAY_MS = 86_400_000


def refuse_replaced_offsets(run: Run, log: DecisionLog) -> None:
    """The batch at hand begins where Spark's file of the one before ends. A driver that was frozen
    before it named that file may have put its own in the place of its successor's since
    (CheckpointFileManager.scala looks, and then renames).

    Raises:
        CheckpointRefused: it is not what that batch has read by its record.
        ExactumError: as ``DecisionLog.read``.
    """
    begins, last = run.first_batch_id, run.first_batch_id - 1
    log.read(begins)  # first: see ``ends.check_start``
    for record in commits_in_force(recent(log, begins, run.record.content.noted, batches=1)):
        if run.read(f"{OFFSETS}/{last}") is not None:
            refuse_other_offsets(record, source_offsets(run.read, last, run.checkpoint))


class RunStart(EpochListener):
    """Of one run. What recovery did is known from the events that it emits: ``listen`` passes every
    event on, and emits ``RunStarted`` right after older runs are fenced.

    As a duty it says that the query waits for its first batch: onlookers would take it for dead.
    """

    every_s = 10.0
    trouble = "that it waits is not seen by onlookers"

    def __init__(self, run: Run, sinks: OpenedSinks) -> None:
        self._run = run
        self._first: Batch | None = None
        self._redelivered: list[int] = []
        self._swept = 0
        decides = run.guarantee is Guarantee.EXACTLY_ONCE
        self._timeouts_ms = sinks.timeouts_ms if decides else {}
        self._said = False
        self._report = watchers()
        tables = [repr(name) for name, sink in sinks.each if sink.makes_versions]
        trigger = INTERVAL.fullmatch(run.trigger)
        if tables and trigger and int(trigger[1]) < VERSION_EVERY_MS:
            self._warn_of_versions(tables, int(trigger[1]))

    def _warn_of_versions(self, tables: Sequence[str], every_ms: int) -> None:
        often = (
            f"every {every_ms} ms" if every_ms else "as soon as there are rows, say once a second"
        )
        a_day = DAY_MS // (every_ms or 1_000)
        logger.warning(
            "%s commits %s: that makes %s versions a day of each of its tables (%s), with a file "
            "for every task and partition. Commits and readers get slow. Let it gather rows: "
            "trigger(processingTime='10 seconds') makes 8,640.",
            self._run,
            often,
            f"{a_day:,}",
            ", ".join(tables),
        )

    def listen(self, event: events.Event) -> None:
        self._run.emit(event)
        if self._said:
            return
        match event:
            case events.EpochRedelivered():
                self._redelivered.append(event.batch_id)
            case events.LeftoversSwept():
                self._swept += event.transactions
            case events.OlderRunsFenced():
                self._say(event.batch_id)

    def begin(self, batch: Batch) -> None:
        """Of the run's first one."""
        self._first = batch

    def tend(self) -> None:
        if self._first is None:
            run = self._run
            self._report(
                events.QueryWaits(
                    *run.about(-1), run.run_id, run.name, run.checkpoint, run.live.doing()
                )
            )

    def _say(self, batch_id: int) -> None:
        self._said = True
        offsets = self._first.offsets if self._first is not None else None
        is_next = self._first is not None and batch_id > self._first.batch_id
        self._run.emit(
            events.RunStarted(
                *self._run.about(batch_id),
                run_id=self._run.run_id,
                name=self._run.name,
                guarantee=self._run.guarantee.value,
                checkpoint=self._run.checkpoint,
                offsets=() if offsets is None else offsets.end if is_next else offsets.start,
                redelivered=tuple(self._redelivered),
                swept=self._swept,
                timeouts_ms=self._timeouts_ms,
                trigger_ms=interval_ms(self._run.trigger),
                ends=ends_by_itself(self._run),
                inputs=inputs_of(self._run),
            )
        )


def interval_ms(trigger: str) -> int:
    """How far apart a query with this trigger begins its micro-batches; 0: at once."""
    found = INTERVAL.fullmatch(trigger)
    return int(found[1]) if found else 0


def inputs_of(run: Run) -> dict[str, str]:
    """What the query reads of Kafka, as it was asked for, and from which brokers."""
    found: dict[str, str] = {}
    for source in filter(lambda one: one.is_kafka, run.sources):
        servers = source.option("kafka.bootstrap.servers") or ""
        chosen = Subscription.of(source.options)
        topics = chosen.named() if chosen.pattern is None else [chosen.pattern]
        found |= dict.fromkeys(topics, servers)
    return found


def ends_by_itself(run: Run) -> bool:
    """Whether the query ends when it has read what is there."""
    return run.trigger.startswith(ENDING_TRIGGERS) or bool(stops_of(run))


WATCHED = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.timestampType",
    "spark.sql.caseSensitive",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.legacy.timeParserPolicy",
)


def settings_of(run: Run) -> dict[str, str]:
    """Those that its expressions depend on. Says which are others than of the run before."""
    now: dict[str, str] = {}
    try:
        found = {name: run.session.conf.get(name, None) for name in WATCHED}
        now = {name: value for name, value in found.items() if value is not None}
    except JvmError as error:
        logger.debug("%s: settings are not compared: %s", run, error)
    before = run.record.content.settings
    changed = [
        f"{name} was {before[name]!r} and is {value!r} now"
        for name, value in now.items()
        if before.get(name, value) != value
    ]
    if changed:
        logger.warning(
            "%s is started with other settings than before, which Spark does not keep in the "
            "checkpoint: %s. From here on the query may give another result for the same "
            "rows: days and hours are cut elsewhere, keys of its state and folders of its "
            "files are named otherwise. If that is not meant, stop it and set them as before.",
            run,
            "; ".join(changed),
        )
    return now


def note_first(run: Run) -> None:
    """Of a run that was not opened, where Spark may log its first batch all the same: from that one
    on each has to be decided. Raises as ``RecordFile``.
    """
    if run.guarantee is Guarantee.EXACTLY_ONCE:
        noted = Noted(first=run.first_batch_id)
        run.record.change(
            lambda record: structs.replace(
                record, noted=noted if record.noted.first is None else record.noted
            )
        )


class FormerSinks(EpochListener):
    """Finds the sinks of earlier runs, and puts this run's on record before its first task, where
    these may leave something open; once a batch stands, that, and the session's settings.
    """

    def __init__(
        self,
        run: Run,
        sinks: OpenedSinks,
        log: DecisionLog,
        log_place: str,
        attending: Attending,
    ) -> None:
        """``log_place``: where the query's decisions are, without secrets."""
        self._run = run
        self._attending = attending
        self._opened = sinks.each
        self._present = [KnownSink(name, dict(sink.trace)) for name, sink in sinks.each]
        self._log = log
        self._log_place = log_place
        self._settings = settings_of(run)
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

    def writing(self, batch: Batch) -> None:
        """From here on tasks may leave something open, and the batch may be decided. Or it is
        written without a decision: not with the first batch alone, for that one may be decided, and
        is committed again.
        """
        noted = self._run.record.content.noted
        counts = noted.first is not None and noted.undecided_from is None
        if self._run.guarantee is Guarantee.AT_LEAST_ONCE and counts:
            noted = replace(noted, undecided_from=batch.batch_id)
            self._run.record.change(lambda record: structs.replace(record, noted=noted))
        if batch.first:
            self._put_on_record(noted if counts else Noted(first=batch.batch_id))

    def done(self, batch: Batch, completed: Completed) -> None:
        """The run's first batch is decided: not before it is, so that a start which dies before its
        first record leaves no promise. A former sink that the start found empty is forgotten. Where
        an earlier run had decided that one, so is the first that this run has decided itself: of
        later ones its fence or their names tell a Kafka sink, and nothing else of this one.
        """
        if batch.first and not completed.written:
            self._attending.stays(self)
        elif not completed.written:
            return
        elif not batch.first:
            self._attending.leaves(self)
        noted = self._run.record.content.noted
        if noted.first is None or noted.undecided_from is not None:  # decided by an earlier run
            noted = Noted(first=batch.batch_id)
        empty = [former for former, reached in self._reached if reached.was_empty]
        self._former = [sink for sink in self._former if sink not in empty]
        self._put_on_record(replace(noted, decided=batch.batch_id), self._settings)

    def close(self) -> None:
        for _, reached in self._reached:
            reached.close()

    def _put_on_record(self, noted: Noted, settings: Mapping[str, str] | None = None) -> None:
        """Another guarantee than exactly once says nothing of sinks and decisions: what is on
        record of these holds for the run that comes after it.
        """
        run = self._run
        staging = recorded_staging(run, run.identity.staging)
        log_id = self._log.log_id() if isinstance(self._log, Identified) else None

        def changed(record: QueryRecord) -> QueryRecord:
            record = structs.replace(record, runs=max(record.runs, run.number))
            if settings:
                record = structs.replace(record, settings=settings)
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
