"""One run of a query under one guarantee: its sinks opened, its protocol, and one batch at a time.

Spark's micro-batch --RunOfQuery.batch--> offsets read --protocol.run--> write job | drained
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame

from exactum import events
from exactum.errors import EpochAborted, FrameRefused, SettingRefused
from exactum.protocol.at_most_once import AtMostOnce
from exactum.protocol.coordinator import Completed, Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Sink, Write, WriteOrder
from exactum.spark import checkpoint, epoch_input, query, view, write_job
from exactum.spark.at_least_once import AtLeastOnce
from exactum.spark.attendant import Attendant, Batch
from exactum.spark.attendants import attendants
from exactum.spark.attendants import close as close_attendants
from exactum.spark.collecting import Collect, collected
from exactum.spark.control.stream import ControlStream
from exactum.spark.decision_place import open_log
from exactum.spark.decoding.bad_records import BadRecords
from exactum.spark.former_sinks import FormerSinks
from exactum.spark.life.handover import Columns
from exactum.spark.life.run_start import RunStart
from exactum.spark.query import RunningQuery
from exactum.spark.small_epoch import SmallEpochs
from exactum.spark.standing_epoch import StandingEpochs
from exactum.spark.view_jobs import ViewJobs
from exactum.spark.write_task import DeadLetterPlan

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("exactum")

DEAD_LETTERS = "dead letters"
"""Name of the participant that takes dead letters."""

IDLE_SWEEPS_S = (2.0, 6.0, 15.0)
"""How long after a quiet stream's last epoch its leftovers are looked for."""
FAILED_SWEEPS_S = (1.0, 3.0)
"""How long after a failed query was found to have ended its leftovers are looked for: a worker whose task Spark has
cancelled may take its cut-off input for a whole one, and goes on until it finds nobody there to tell of what it has
prepared."""


class EpochProtocol(Protocol):
    """What the three guarantees have in common: ``Coordinator``, ``AtMostOnce``, ``AtLeastOnce``."""

    def run(self, batch_id: int, offsets: SourceOffsets, write: Write) -> Completed: ...

    def prune(self, below_batch_id: int) -> None: ...

    def close(self) -> None: ...


class RunOfQuery:
    """Everything that lives as long as one run of one query. Made by ``start``."""

    def __init__(
        self,
        run: QueryRun,
        running: RunningQuery,
        protocol: EpochProtocol,
        targets: Targets,
        opened: Sequence[tuple[str, OpenSink]],
        pool: ThreadPoolExecutor | None,
        read: checkpoint.ReadText,
        attendants: Sequence[Attendant],
        bad_records: BadRecords,
        standing_epochs: StandingEpochs,
        on_event: events.Listener,
        columns: tuple[Columns, ...],
    ) -> None:
        self.running = running
        self.columns = columns
        self._incarnation = run.incarnation
        self._protocol = protocol
        self._opened = tuple(opened)
        self._views = view.views(targets.sinks)
        self._dead_letters = targets.dead_letter_plan(opened)
        writers = [(name, sink.writers) for name, sink in opened]
        self._jobs = ViewJobs(self._views, writers, run, self._dead_letters, count_once=bad_records.read_again)
        self._small_epochs = SmallEpochs(running)
        self._standing_epochs = standing_epochs
        self._emit = on_event
        self._pool = pool
        self._read = read
        self._attendants = tuple(attendants)
        self._bad_records = bad_records
        self._last_batch: tuple[int, float] | None = None  # batch id, and when it was done
        self._sweeps = 0
        self._working = threading.Lock()
        self._closed = False

    def batch(self, frame: DataFrame, batch_id: int, before_decision: Callable[[], None]) -> Completed:
        """Bring one micro-batch into every sink, or drain it where it stands already.

        ``before_decision`` is called when everything is prepared and may refuse by raising.

        Raises:
            EpochAborted: the query was stopped, and the run closed, before the batch began.
        """
        with self._working:
            if self._closed:
                raise EpochAborted(write_job.CANCELLED)
            return self._batch(frame, batch_id, before_decision)

    def ended(self) -> None:
        """The query has ended. Its batch at hand goes on to its end or to Spark's cancelling it, and needs its
        connections for that: a decided epoch as long as its commit has time, which only its sinks know. Then sweep what
        its tasks leave.
        """
        with self._working:
            pass
        if not isinstance(self._protocol, Coordinator) or self._protocol.abandoned is None:
            return
        began_s = time.monotonic()
        for after_s in FAILED_SWEEPS_S:
            time.sleep(max(0.0, began_s + after_s - time.monotonic()))
            if not self._closed:  # by a next start, which sweeps
                self._protocol.sweep_own(self._protocol.abandoned)

    @property
    def may_leave_open(self) -> bool:
        """True where an epoch was abandoned: its tasks may still open transactions, which ``ended`` sweeps."""
        return isinstance(self._protocol, Coordinator) and self._protocol.abandoned is not None

    def _batch(self, frame: DataFrame, batch_id: int, before_decision: Callable[[], None]) -> Completed:
        prepared: list[PreparedTransaction] = []

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            with epoch_input.named(offsets):
                prepared.extend(self._jobs.run(frame, order, lambda whole: self._cheaply(whole, offsets)))
                if self._dead_letters is not None:
                    prepared.extend(self._bad_records.write(frame, order, DEAD_LETTERS, self._dead_letters))
            before_decision()
            return prepared

        offsets = checkpoint.source_offsets(self._read, batch_id, self.running.checkpoint)
        batch = Batch(batch_id, offsets, first=self._last_batch is None)
        for attendant in self._attendants:
            attendant.begin(batch)
        completed = self._protocol.run(batch_id, offsets, write)
        if not completed.written and not self._standing_epochs.go_on(batch_id, completed.engine):
            write_job.drain(frame)
        refused = sum(p.rows for p in prepared if p.participant == DEAD_LETTERS)
        if refused:
            self._emit(events.RowsDeadLettered(self.running.query_id, batch_id, self._incarnation, refused))
        for attendant in self._attendants:
            attendant.done(batch, completed)
        self._prune(batch_id)
        self._last_batch, self._sweeps = (batch_id, time.monotonic()), 0
        return completed

    def _cheaply(self, frame: DataFrame, offsets: SourceOffsets) -> AbstractContextManager[tuple[DataFrame, Collect]]:
        """What is written, as a small epoch where it is one. Not in a run's first batch, which somebody waits for."""
        if self._last_batch is None:
            return nullcontext((frame, collected))
        return self._small_epochs.cheaply(frame, offsets)

    def idle(self) -> None:
        """Called now and then while the query waits, for the attendants and for late leftovers."""
        for attendant in self._attendants:
            attendant.idle()
        self._sweep_late()

    def _sweep_late(self) -> None:
        """Abort what a late task has left open, a few times an epoch.

        Spark kills the losers of speculation within seconds of the winner's end.
        """
        if self._last_batch is None or not isinstance(self._protocol, Coordinator):
            return
        batch_id, done_s = self._last_batch
        if self._sweeps < len(IDLE_SWEEPS_S) and time.monotonic() - done_s >= IDLE_SWEEPS_S[self._sweeps]:
            self._sweeps += 1
            self._protocol.sweep_own(batch_id)

    def close(self) -> None:
        """Let go of every connection; what is open in the targets stays as it is."""
        self._closed = True
        try:
            close_attendants(self._attendants)
        finally:
            self._close_protocol()

    def _close_protocol(self) -> None:
        try:
            self._protocol.close()
            if not isinstance(self._protocol, Coordinator):  # which closes its participants itself
                for _, sink in self._opened:
                    sink.participant.close()
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False)

    def _prune(self, batch_id: int) -> None:
        below = batch_id - self.running.retained - 1
        if below <= 0:
            return
        try:
            self._protocol.prune(below)
        except Exception as error:  # noqa: BLE001  (the epoch stands; what is kept too long harms nobody)
            logger.warning("%s: old decision records could not be pruned: %s", self.running, error)


@dataclass(frozen=True)
class Targets:
    """Where a query's batches go: its sinks, and the sink for the rows that these refuse, if there is one."""

    sinks: tuple[Sink, ...]
    dead_letters: Sink | None = None

    def all(self) -> tuple[Sink, ...]:
        return self.sinks if self.dead_letters is None else (*self.sinks, self.dead_letters)

    def names(self) -> list[str]:
        """The participants' names: the sinks' own, the later of equal ones numbered, then ``DEAD_LETTERS``."""
        names = participant_names(self.sinks)
        return names if self.dead_letters is None else [*names, DEAD_LETTERS]

    def dead_letter_plan(self, opened: Sequence[tuple[str, OpenSink]]) -> DeadLetterPlan | None:
        if self.dead_letters is None:
            return None
        sink = opened[-1][1]
        names = (name for name, _ in self.dead_letters.dead_letter_columns if name not in sink.left_out)
        return DeadLetterPlan(sink.writers, tuple(names))


def start(
    frame: DataFrame,
    batch_id: int,
    running: RunningQuery,
    targets: Targets,
    guarantee: Guarantee,
    decision_log: DecisionLog | str | Path | None,
    control: Sequence[ControlStream],
    on_event: events.Listener,
) -> RunOfQuery:
    """Check everything that can be checked before the first row, connect, and return the run.

    ``frame`` is the batch ``batch_id``, the first one that this run is asked for.

    Raises:
        Refused: the query, a sink, its settings or the frame's columns cannot hold the guarantee.
        Unavailable: a target did not answer.
    """
    query.refuse_unsafe(running)
    if guarantee is Guarantee.AT_MOST_ONCE:
        refuse_repeated_stages(frame, running)
    run = QueryRun(running.query_id, new_incarnation(), guarantee)
    bad_records = BadRecords(running, run, on_event, dead_letters=targets.dead_letters is not None)
    beginning = RunStart(running, run, on_event, has_door=guarantee is Guarantee.EXACTLY_ONCE)
    with ExitStack() as undo:
        attending = [*attendants(frame, batch_id, running, run, control, on_event), beginning, bad_records]
        undo.callback(close_attendants, attending)
        columns = check_columns(frame, targets)  # rows= may ask a control stream for its rules
        log = None if guarantee is Guarantee.AT_LEAST_ONCE else open_log(running, decision_log)
        if log is not None:
            undo.callback(log.close)
        count = len(targets.all())
        pool = ThreadPoolExecutor(count, "exactum-sink") if count > 1 else None
        if pool is not None:
            undo.callback(pool.shutdown, wait=False)
        opened = open_sinks(targets, run, columns, pool)
        for _, sink in opened:
            undo.callback(sink.participant.close)
        refuse_shared_targets(targets, opened)
        former = FormerSinks(running, run, opened, on_event)
        attending.append(former)
        reached = former.reached(batch_id)
        undo.pop_all()
    participants = [sink.participant for _, sink in opened]
    standing_epochs = StandingEpochs(frame.sparkSession, running)
    protocol: EpochProtocol
    if log is None:
        protocol = AtLeastOnce(run, on_event=on_event)
    elif guarantee is Guarantee.AT_MOST_ONCE:
        protocol = AtMostOnce(run, log, on_event=on_event)
    else:
        protocol = Coordinator(
            run,
            participants,
            log,
            former=reached,
            engine=standing_epochs.record,
            on_event=beginning.listen,
            parallel=_parallel(pool),
        )
    read = query.reader_of(frame, running)
    return RunOfQuery(
        run,
        running,
        protocol,
        targets,
        opened,
        pool,
        read,
        attending,
        bad_records,
        standing_epochs,
        on_event,
        columns,
    )


def check_columns(frame: DataFrame, targets: Targets) -> tuple[Columns, ...]:
    """What each of ``targets.all()`` writes, which it has been asked whether it can.

    Raises:
        FrameRefused: two columns share a name, or a sink cannot write its view of the frame.
    """
    found: dict[int, Columns] = {}
    for one in view.views(targets.sinks):
        columns = tuple(one.of(frame).dtypes)
        refuse_equal_names(columns)
        for place in one.sinks:
            targets.sinks[place].check_columns(columns)
            found[place] = columns
    if targets.dead_letters is not None:
        found[len(targets.sinks)] = tuple(targets.dead_letters.dead_letter_columns)
        targets.dead_letters.check_columns(targets.dead_letters.dead_letter_columns)
    return tuple(found[place] for place in range(len(found)))


def refuse_equal_names(columns: Sequence[tuple[str, str]]) -> None:
    """
    Raises:
        FrameRefused: two columns share a name.
    """
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FrameRefused(
            f"The frame has more than one column named {', '.join(twice)}; nobody can tell which one is "
            f"meant. Rename or drop one of: {', '.join(names)}. Nothing was written."
        )


def open_sinks(
    targets: Targets, run: QueryRun, columns: Sequence[Columns], pool: ThreadPoolExecutor | None
) -> list[tuple[str, OpenSink]]:
    """Open all sinks, at the same time where there are several; if one fails, close the others and raise."""
    sinks, names = targets.all(), targets.names()
    each = list(zip(sinks, names, columns, strict=True))
    if pool is None:
        return [(name, sink.open(run, name, its)) for sink, name, its in each]
    futures = [pool.submit(sink.open, run, name, its) for sink, name, its in each]
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        for future in futures:
            if future.exception() is None:
                future.result().participant.close()
        raise errors[0]
    return [(name, future.result()) for name, future in zip(names, futures, strict=True)]


def refuse_shared_targets(targets: Targets, opened: Sequence[tuple[str, OpenSink]]) -> None:
    """Two sinks on one target write each row of the batch twice, unless each takes a part of it by ``rows=``.

    Raises:
        SettingRefused: there are two such sinks, or dead letters go where rows go.
    """
    sinks = targets.all()
    for one, two in combinations(range(len(opened)), 2):
        (first, at_first), (second, at_second) = opened[one], opened[two]
        if at_first.target is None or at_first.target != at_second.target:
            continue
        if two == len(targets.sinks):
            raise SettingRefused(
                f"The dead letters go to the target of the sink {first!r}: {at_first.target}. Its readers would take "
                "them for rows. Give them a place of their own. Nothing was written."
            )
        if sinks[one].rows is None or sinks[two].rows is None or sinks[one].rows == sinks[two].rows:
            raise SettingRefused(
                f"Two sinks, {first!r} and {second!r}, write to one target: {at_first.target}. Every row would be "
                "there twice. Remove one, or give each a rows= function of its own that takes its part of the batch. "
                "Nothing was written."
            )


def participant_names(sinks: Sequence[Sink]) -> list[str]:
    """The sinks' names, the later of equal ones numbered: ``name``, ``name#2``, ... in the order given."""
    names: list[str] = []
    for sink in sinks:
        name, number = sink.name, 1
        while name in names:
            number += 1
            name = f"{sink.name}#{number}"
        names.append(name)
    return names


def refuse_repeated_stages(frame: DataFrame, running: RunningQuery) -> None:
    """At most once cannot tell a repeated stage's tasks from first tries: Spark does not tell Python.

    Stages repeat when another machine's shuffle files are lost, so a local master needs no setting.

    Raises:
        SettingRefused: the cluster may repeat a stage.
    """
    key = "spark.stage.maxConsecutiveAttempts"
    if running.master.startswith("local") and not running.master.startswith("local-cluster"):
        return
    if frame.sparkSession.sparkContext.getConf().get(key, "4") != "1":
        raise SettingRefused(
            f"{running} is at most once on the cluster {running.master}, where Spark repeats a stage whose "
            f"shuffle files are lost and so would write rows twice. Start the session with {key}=1. "
            "Nothing was written."
        )


def _parallel(
    pool: ThreadPoolExecutor | None,
) -> Callable[[Callable[[T], R], Sequence[T]], list[R]]:
    def run(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if pool is None or len(items) <= 1:
            return [function(item) for item in items]
        futures = [pool.submit(function, item) for item in items]
        wait(futures)  # also where one has failed: nobody may use what another still uses
        return [future.result() for future in futures]

    return run
