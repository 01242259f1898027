"""The start of a run: all that can be checked before the first row, and every connection."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame

from exactum.checkpoint.decision_place import open_log, refuse_another_log, shown_place
from exactum.checkpoint.offset_log import last_given
from exactum.checkpoint.staging_place import staging_at
from exactum.errors import SettingRefused
from exactum.protocol.at_least_once import AtLeastOnce, NoLog
from exactum.protocol.at_most_once import AtMostOnce
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.spark import query
from exactum.spark.control.listener import ControlListener
from exactum.spark.decoding.bad_records import BadRecords
from exactum.spark.master import is_one_process
from exactum.spark.query import RunningQuery
from exactum.spark.run.delivery import DeliverySettings
from exactum.spark.run.engine import Engine
from exactum.spark.run.epoch_listeners import close_listeners
from exactum.spark.run.epoch_runner import EpochRunner
from exactum.spark.run.former_sinks import FormerSinks
from exactum.spark.run.hadoop_storage import query_record
from exactum.spark.run.history import keep_history
from exactum.spark.run.kafka_to_kafka import kept_from_input
from exactum.spark.run.opened_sinks import OpenedSinks, check_columns
from exactum.spark.run.run_start import RunStart
from exactum.spark.run.shared_places import refuse_within
from exactum.spark.run_context import RunContext

PROTOCOLS = {
    Guarantee.EXACTLY_ONCE: Coordinator,
    Guarantee.AT_LEAST_ONCE: AtLeastOnce,
    Guarantee.AT_MOST_ONCE: AtMostOnce,
}


def open_run(
    frame: DataFrame,
    batch_id: int,
    running: RunningQuery,
    delivery: DeliverySettings,
    engine: Engine,
) -> EpochRunner:
    """Check everything that can be checked before the first row, connect, and return the run.

    ``frame`` has the columns of every batch, and is in the session of the batches; the first one
    that this run is asked for is ``batch_id``.

    Raises:
        Refused: the query, a sink, its settings or the frame's columns cannot hold the guarantee.
        Unavailable: a target did not answer.
    """
    query.refuse_unsafe(running)
    if delivery.guarantee is Guarantee.AT_MOST_ONCE:
        refuse_repeated_stages(frame, running)
    staging = staging_at(running, delivery.places.staging)
    run = QueryRun(running.query_id, new_incarnation(), delivery.guarantee, staging)
    read = query.reader_of(frame, running)
    record = query_record(frame.sparkSession, running)
    context = RunContext(frame.sparkSession, running, run, batch_id, delivery.emit, read, record)
    keep_history(context.session, running.query_id, running.folder)
    with ExitStack() as undo:
        run_start = RunStart(context)
        attending = [*engine.listeners(context, delivery.control), run_start]
        undo.callback(close_listeners, attending)
        bad_records = BadRecords(context, dead_letters=delivery.targets.dead_letters is not None)
        attending.append(bad_records)
        # After the listeners: rows= may ask a control stream for its rules.
        columns = check_columns(frame, delivery.targets)
        log = log_of(running, delivery)
        undo.callback(log.close)
        place = shown_place(delivery.places.decision_log)
        refuse_another_log(running, record.content, log, place, batch_id)
        noted = record.content.noted
        given = last_given(read, batch_id - 1)
        if given < batch_id - 1 and noted.undecided_from is None:  # Spark's repartition of state
            noted = replace(noted, undecided_from=given + 1)
        sinks = OpenedSinks(delivery.targets, run, columns)
        undo.callback(sinks.close)
        if running.folder is not None:
            refuse_within(sinks.each, "checkpoint", os.path.realpath(running.folder))
        if staging is not None:
            refuse_within(sinks.each, "staging", staging.where)
        sinks.each = kept_from_input(running, sinks.each)
        run_start.opened(sinks)
        former = FormerSinks(context, sinks, log, place)
        attending.append(former)
        control = [each for each in attending if isinstance(each, ControlListener)]
        standing_epochs = engine.standing_epochs(context, control)
        protocol = PROTOCOLS[delivery.guarantee](
            run,
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
        context,
        protocol,
        sinks,
        standing_epochs,
        attending,
        bad_records=bad_records,
        writing=engine.writing(context),
    )


def log_of(running: RunningQuery, delivery: DeliverySettings) -> DecisionLog:
    """Where it finds what earlier runs have decided. ``at_least_once`` goes without, where
    ``exactly_once`` cannot have run without a ``decision_log=``.
    """
    is_without = delivery.places.decision_log is None and running.folder is None
    if is_without and delivery.guarantee is Guarantee.AT_LEAST_ONCE:
        return NoLog()
    return open_log(running, delivery.places.decision_log)


def refuse_repeated_stages(frame: DataFrame, running: RunningQuery) -> None:
    """At most once cannot tell a repeated stage's tasks from first tries: Spark does not tell
    Python.

    Stages repeat when another machine's shuffle files are lost, so a local master needs no setting.

    Raises:
        SettingRefused: the cluster may repeat a stage.
    """
    key = "spark.stage.maxConsecutiveAttempts"
    if is_one_process(running.master):
        return
    if frame.sparkSession.conf.get(key, "4") != "1":
        raise SettingRefused(
            "AT_MOST_ONCE_CLUSTER",
            f"{running} is at most once on the cluster {running.master}, where Spark repeats a "
            "stage whose shuffle files are lost and so would write rows twice. Start the session "
            f"with {key}=1. Nothing was written.",
        )
