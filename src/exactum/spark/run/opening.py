"""The start of a run: all that can be checked before the first row, and every connection."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame

from exactum.checkpoint.decision_place import open_log, refuse_another_log, shown_place
from exactum.checkpoint.offset_log import last_given
from exactum.errors import SettingRefused
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.sink import Guarantee
from exactum.protocol.weaker_guarantees import AtLeastOnce, AtMostOnce, NoLog
from exactum.spark import query
from exactum.spark.control.listener import ControlListener
from exactum.spark.decoding.bad_records import refuse_without_dead_letters
from exactum.spark.master import is_one_process
from exactum.spark.query import Run
from exactum.spark.run.delivery import DeliverySettings
from exactum.spark.run.engine import Engine
from exactum.spark.run.epoch_runner import EpochRunner
from exactum.spark.run.former_sinks import FormerSinks
from exactum.spark.run.history import keep_history
from exactum.spark.run.kafka_to_kafka import kept_from_input
from exactum.spark.run.opened_sinks import OpenedSinks, check_columns
from exactum.spark.run.run_start import RunStart
from exactum.spark.run.shared_places import refuse_within

PROTOCOLS = {
    Guarantee.EXACTLY_ONCE: Coordinator,
    Guarantee.AT_LEAST_ONCE: AtLeastOnce,
    Guarantee.AT_MOST_ONCE: AtMostOnce,
}


def open_run(run: Run, frame: DataFrame, delivery: DeliverySettings, engine: Engine) -> EpochRunner:
    """Check everything that can be checked before the first row, connect, and return what runs the
    batches of ``run``, whose columns ``frame`` has.

    Raises:
        Refused: the query, a sink, its settings or the frame's columns cannot hold the guarantee.
        Unavailable: a target did not answer.
    """
    query.refuse_unsafe(run)
    if run.guarantee is Guarantee.AT_MOST_ONCE:
        refuse_repeated_stages(run)
    identity = run.identity
    keep_history(run.session, run.query_id, run.folder)
    with ExitStack() as undo:
        run_start = RunStart(run)
        attending = engine.attending(run, delivery.control)
        undo.callback(attending.close)
        bad_records = engine.bad_records(run)
        if delivery.targets.dead_letters is None:
            refuse_without_dead_letters(run, bad_records)
        attending.attends(run_start)
        attending.duties.append(run_start)
        attending.attends(bad_records)
        # Who attends is there: rows= may ask a control stream for its rules.
        columns = check_columns(frame, delivery.targets)
        log = log_of(run, delivery)
        undo.callback(log.close)
        place = shown_place(delivery.places.decision_log)
        refuse_another_log(run, run.record.content, log, place, run.first_batch_id)
        noted = run.record.content.noted
        given = last_given(run.read, run.first_batch_id - 1)
        if given < run.first_batch_id - 1 and noted.undecided_from is None:
            noted = replace(noted, undecided_from=given + 1)  # Spark has repartitioned the state
        sinks = OpenedSinks(delivery.targets, identity, columns)
        undo.callback(sinks.close)
        if run.folder is not None:
            refuse_within(sinks.each, "checkpoint", os.path.realpath(run.folder))
        if identity.staging is not None:
            refuse_within(sinks.each, "staging", identity.staging.where)
        sinks.each = kept_from_input(run, sinks.each)
        run_start.opened(sinks)
        former = FormerSinks(run, sinks, log, place)
        attending.attends(former)
        control = [each for each in attending.listeners if isinstance(each, ControlListener)]
        writing = engine.writing(run)
        standing_epochs = engine.standing_epochs(run, control, writing)
        attending.attends(standing_epochs)
        protocol = PROTOCOLS[run.guarantee](
            identity,
            sinks.participants,
            log,
            former=former.reached(),
            noted=noted,
            engine=standing_epochs.record,
            on_event=run_start.listen,
            parallel=sinks.parallel,
        )
        for each in control:
            each.opened()
        undo.pop_all()
    return EpochRunner(
        run,
        protocol,
        sinks,
        standing_epochs=standing_epochs,
        attending=attending,
        bad_records=bad_records,
        writing=writing,
    )


def log_of(run: Run, delivery: DeliverySettings) -> DecisionLog:
    """Where it finds what earlier runs have decided. ``at_least_once`` goes without, where
    ``exactly_once`` cannot have run without a ``decision_log=``.
    """
    is_without = delivery.places.decision_log is None and run.folder is None
    if is_without and delivery.guarantee is Guarantee.AT_LEAST_ONCE:
        return NoLog()
    return open_log(run, delivery.places.decision_log)


def refuse_repeated_stages(run: Run) -> None:
    """At most once cannot tell a repeated stage's tasks from first tries: Spark does not tell
    Python.

    Stages repeat when another machine's shuffle files are lost, so a local master needs no setting.

    Raises:
        SettingRefused: the cluster may repeat a stage.
    """
    key = "spark.stage.maxConsecutiveAttempts"
    if is_one_process(run.master):
        return
    if run.session.conf.get(key, "4") != "1":
        raise SettingRefused(
            "AT_MOST_ONCE_CLUSTER",
            f"{run} is at most once on the cluster {run.master}, where Spark repeats a "
            "stage whose shuffle files are lost and so would write rows twice. Start the session "
            f"with {key}=1. Nothing was written.",
        )
