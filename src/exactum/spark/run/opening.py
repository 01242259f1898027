"""The start of a run: all that can be checked before the first row, and every connection."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint.query_place import open_log, refuse_another_log, shown_place
from exactum.errors import ExactumError
from exactum.monitor.recorder import RECORDER
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import committed_before
from exactum.protocol.sink import Guarantee
from exactum.protocol.weaker_guarantees import AtLeastOnce, AtMostOnce, NoLog
from exactum.spark.arguments import DeliverySettings
from exactum.spark.control.listener import ControlListener
from exactum.spark.decoding.bad_records import (
    BadRecords,
    CountedBadRecords,
    refuse_without_dead_letters,
)
from exactum.spark.query import Run
from exactum.spark.run import refusals, termination
from exactum.spark.run.batches import EpochRunner, how_it_ended, tell_supervisor
from exactum.spark.run.committed_epochs import CommittedEpochs, DecidedEpochs
from exactum.spark.run.epoch_gate import EpochGate, StopRequest
from exactum.spark.run.housekeeping import Attending, ProgressReports
from exactum.spark.run.opened_sinks import OpenedSinks, check_columns
from exactum.spark.run.run_start import FormerSinks, RunStart, refuse_replaced_offsets
from exactum.spark.settings import is_on
from exactum.spark.source.bounds import Bounds, stops_of
from exactum.spark.source.watch import Clients, topic_watch_of
from exactum.spark.supervised.process import current
from exactum.spark.write.small_epoch import SmallEpochs
from exactum.spark.write.write_job import Jobs, PackedWriteJob

HISTORY_SETTING = "spark.exactum.history.enabled"
"""A Spark setting; "false" keeps no history beside the checkpoint (``monitor.history``)."""
PROTOCOLS = {
    Guarantee.EXACTLY_ONCE: Coordinator,
    Guarantee.AT_LEAST_ONCE: AtLeastOnce,
    Guarantee.AT_MOST_ONCE: AtMostOnce,
}


@dataclass(frozen=True)
class Engine:
    """What a run asks of the kind of its query's session, each once, and of the run."""

    gate: Callable[[Run], EpochGate]
    """What lets its batches begin."""
    termination: Callable[[Run], Callable[[], None]]
    """SIGTERM waits for the micro-batch at hand; gives what is to be called at the run's end.
    Raises as ``termination.watch``."""
    bad_records: Callable[[Run], BadRecords]
    """What becomes of the bad records of its decodings."""
    jobs: Callable[[Run], Jobs]
    """What runs the tasks of its micro-batches."""
    committed_epochs: Callable[[Run, Sequence[ControlListener], Jobs], CommittedEpochs]
    """What goes on from an epoch that stands."""


CLASSIC = Engine(
    gate=EpochGate,
    termination=lambda run: termination.watch(run) if current() is None else lambda: None,
    bad_records=CountedBadRecords,
    jobs=lambda run: partial(PackedWriteJob, run=run, small_epochs=SmallEpochs(run)),
    committed_epochs=DecidedEpochs,
)
"""Of a classic session, whose JVM and plans are at hand; ``connect.server.connect`` is the other.
In a supervised script SIGTERM is the supervisor's.
"""


def open_run(run: Run, frame: DataFrame, delivery: DeliverySettings, engine: Engine) -> EpochRunner:
    """Check everything that can be checked before the first row, connect, and return what runs the
    batches of ``run``, whose columns ``frame`` has.

    Raises:
        Refused: the query, a sink, its settings or the frame's columns cannot hold the guarantee.
        Unavailable: a target did not answer.
    """
    try:
        return _opened(run, frame, delivery, engine)
    except ExactumError as error:
        with suppress(ExactumError):  # of a damaged record, which is the error itself
            run.emit(events.RunEnded(*run.about(-1), *how_it_ended(error, None)))
        tell_supervisor(run, error)
        RECORDER.flush()
        raise


def _opened(run: Run, frame: DataFrame, delivery: DeliverySettings, engine: Engine) -> EpochRunner:
    refusals.refuse_unsafe(run)
    refusals.refuse_repeated_stages(run)
    identity = run.identity
    if run.files is not None and is_on(run.session, HISTORY_SETTING):
        RECORDER.begin(run.query_id, run.files)
    with ExitStack() as undo:
        attending = Attending(engine.gate(run))
        undo.callback(attending.close)
        attending.closes(engine.termination(run))
        _serve(run, attending)
        control: list[ControlListener] = []
        for stream in delivery.control:
            control.append(ControlListener(stream, run))
            attending.attends(control[-1])
        bad_records = engine.bad_records(run)
        if delivery.targets.dead_letters is None:
            refuse_without_dead_letters(run, bad_records)
        if bad_records.has_any:
            attending.attends(bad_records)
        # Who attends is there: rows= may ask a control stream for its rules.
        columns = check_columns(frame, delivery.targets)
        log = log_of(run, delivery)
        undo.callback(log.close)
        place = shown_place(delivery.places.decision_log)
        refuse_another_log(run, run.record.content, log, place, run.first_batch_id)
        refuse_replaced_offsets(run, log)
        committed = partial(committed_before, log, run.first_batch_id, run.record.content.noted)
        sinks = OpenedSinks(delivery.targets, identity, columns, committed)
        undo.callback(sinks.close)
        if run.files is not None:
            where = run.files.where if run.folder is None else os.path.realpath(run.folder)
            refusals.refuse_within(sinks.each, "checkpoint", where)
        if identity.staging is not None:
            refusals.refuse_within(sinks.each, "staging", identity.staging.where)
        sinks.each = refusals.kept_from_input(run, sinks.each)
        former = FormerSinks(run, sinks, log, place, attending)
        start = RunStart(run, sinks)
        attending.duties.append(start)
        jobs = engine.jobs(run)
        committed_epochs = engine.committed_epochs(run, control, jobs)
        attending.attends(start, first_alone=True)
        attending.attends(committed_epochs, first_alone=True)
        attending.attends(former, first_alone=True)
        protocol = PROTOCOLS[run.guarantee](
            identity,
            sinks.participants,
            log,
            former=former.reached(),
            noted=run.record.content.noted,
            engine=committed_epochs.record,
            on_event=start.listen,
            parallel=sinks.parallel,
        )
        for shown in control:
            shown.opened()
        undo.pop_all()
    return EpochRunner(
        run,
        protocol,
        sinks,
        attending,
        committed_epochs=committed_epochs,
        bad_records=bad_records,
        jobs=jobs,
    )


def _serve(run: Run, attending: Attending) -> None:
    """Who serves any run: requests to stop, the topics that it reads, the ends of its sources, and
    Spark's reports. Raises as these do.
    """
    if run.files is not None:  # where ``exactum savepoint create --stop`` asks
        request = StopRequest(run, run.files, attending.gate)
        attending.closes(request.close)
        attending.duties.append(request)
    clients = Clients(run)
    attending.closes(clients.close)  # after those who use them
    topics = topic_watch_of(run, clients)
    if topics is not None:
        attending.attends(topics)
        attending.duties += [topics, topics.groups]
    stops = stops_of(run)
    if stops:
        bounds = Bounds(run, stops, attending.gate)
        attending.attends(bounds)
        attending.duties.append(bounds)
    attending.duties.append(ProgressReports(run))


def log_of(run: Run, delivery: DeliverySettings) -> DecisionLog:
    """Where it finds what earlier runs have decided. ``at_least_once`` goes without, where
    ``exactly_once`` cannot have run without a ``decision_log=``.
    """
    is_without = delivery.places.decision_log is None and run.files is None
    if is_without and delivery.guarantee is Guarantee.AT_LEAST_ONCE:
        return NoLog()
    return open_log(run, delivery.places.decision_log)
