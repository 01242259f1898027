"""A batch load: one frame into all sinks of a ``Delivery``, once, however often it is started.

It is an epoch of its own: batch 0 of a query that the load's id names. There is no checkpoint, so
its decision log is given, and nothing of it is ever pruned.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import LOAD_BATCH, BatchLoad, open_log, staging_at
from exactum.errors import CheckpointRefused, FrameRefused, SettingRefused
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.ends import committed_before
from exactum.protocol.model import (
    Decision,
    PreparedTransaction,
    SourceOffsets,
    new_incarnation,
    rows_by_participant,
)
from exactum.protocol.sink import DEAD_LETTERS, Guarantee, QueryRun, WriteOrder
from exactum.spark.arguments import DeliverySettings
from exactum.spark.connect.server import ConnectJob
from exactum.spark.event_log import listener
from exactum.spark.query import QUERY_AT_HAND, hadoop_of, is_connect
from exactum.spark.run.opened_sinks import EpochWrite, OpenedSinks, check_columns
from exactum.spark.run.refusals import refuse_within
from exactum.spark.write.write_job import FingerprintTask, Jobs, WriteJob, in_our_words
from exactum.spark.write.write_task import Fingerprint

logger = logging.getLogger("exactum")

STAGING = "_staging"
"""Below a ``decision_log`` that is a folder, where no staging is given."""


@dataclass(frozen=True)
class Loaded:
    """The load ``id`` stands in every sink. ``written`` is False where an earlier call had decided
    it; ``query_id`` names it in events, transactions and records.
    """

    id: str
    query_id: str
    written: bool


def loaded(settings: DeliverySettings, frame: DataFrame, load_id: str, *, compare: bool) -> Loaded:
    """See ``Delivery.write``."""
    with in_our_words():
        _check(settings, frame, load_id)
        columns = check_columns(frame, settings.targets)
    over_connect = is_connect(frame)
    load = BatchLoad(load_id, {} if over_connect else hadoop_of(frame.sparkSession))
    staging = staging_at(load, settings.places.staging or _default_staging(settings))
    run = QueryRun(load.query_id, new_incarnation(), Guarantee.EXACTLY_ONCE, staging)
    tag = f"exactum-{run.incarnation}"
    jobs: Jobs = partial(ConnectJob, tag=tag) if over_connect else WriteJob
    with ExitStack() as closing:
        log = open_log(load, settings.places.decision_log)
        closing.callback(log.close)
        committed = partial(committed_before, log, LOAD_BATCH)
        sinks = OpenedSinks(settings.targets, run, columns, committed)
        closing.callback(sinks.close)
        if staging is not None:
            refuse_within(sinks.each, "staging", staging.where)
        if (log_folder := _log_folder(settings)) is not None:
            refuse_within(sinks.each, "decision_log", str(log_folder))
        for record in log.read(LOAD_BATCH):
            if record.decision is Decision.COMMIT:
                _refuse_other_sinks(load, record.engine, sinks)
        epoch = EpochWrite(sinks, run, jobs, hashed=compare)
        emit = listener(settings.on_event)
        coordinator = Coordinator(
            run,
            sinks.participants,
            log,
            engine=lambda: _record(sinks, epoch.fingerprint),
            on_event=emit,
            parallel=sinks.parallel,
        )
        about = run.query_id, LOAD_BATCH, run.incarnation
        emit(events.EpochBegan(*about, None))
        prepared: list[PreparedTransaction] = []

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            with in_our_words():
                prepared.extend(epoch.write(frame, order))
            return prepared

        completed = coordinator.run(LOAD_BATCH, SourceOffsets(), write)
    if completed.written:
        refused = rows_by_participant(prepared).get(DEAD_LETTERS, 0)
        if refused:
            emit(events.RowsDeadLettered(*about, refused))
    else:
        _refuse_other_sinks(load, completed.engine, sinks)  # decided by another call meanwhile
        now = partial(jobs(FingerprintTask()).fingerprint, frame) if compare else None
        with in_our_words():
            _compare(load, completed.engine, now)
    return Loaded(load_id, load.query_id, completed.written)


def _check(settings: DeliverySettings, frame: Any, load_id: Any) -> None:
    if not isinstance(frame, DataFrame) or frame.isStreaming:
        raise FrameRefused(
            "LOAD_FRAME",
            "write() takes a DataFrame that does not stream. For one that does there is "
            "start(frame.writeStream, checkpoint=...). Nothing was written.",
        )
    context: Any = None if is_connect(frame) else frame.sparkSession.sparkContext
    if context is not None and context.getLocalProperty(QUERY_AT_HAND) is not None:
        raise FrameRefused(
            "LOAD_FRAME",
            "write() was called in a micro-batch of a streaming query, whose bad records and state "
            "it knows nothing of. Start the query by start(), or give for_each_batch() the "
            "micro-batch. Nothing was written.",
        )
    if not isinstance(load_id, str) or not load_id.strip():
        raise _refused(f"id={load_id!r} has to be a text that names these rows, and no others")
    if settings.guarantee is not Guarantee.EXACTLY_ONCE:
        raise _refused("a batch load is exactly once: use exactum.exactly_once(...)")
    if settings.places.decision_log is None:
        raise _refused("a load has no checkpoint, so give exactly_once(decision_log=...)")
    folder = _log_folder(settings)
    if folder is not None and not folder.is_absolute():
        raise _refused(
            f"decision_log={str(folder)!r} is another folder wherever the program is started, and "
            "the rows would come again. Give its whole path"
        )
    if settings.control:
        raise _refused("control= is for queries that stream")


def _refused(why: str) -> SettingRefused:
    return SettingRefused("LOAD_ARGUMENT", f"write(): {why}. Nothing was written.")


def _log_folder(settings: DeliverySettings) -> Path | None:
    log = settings.places.decision_log
    return local_folder(str(log)) if isinstance(log, str | Path) else None


def _default_staging(settings: DeliverySettings) -> str | None:
    folder = _log_folder(settings)
    return None if folder is None else str(folder / STAGING)


def _record(sinks: OpenedSinks, found: Fingerprint | None) -> str:
    """What the decision keeps: where the rows go, and their number and hash where they are to be
    compared.
    """
    fingerprint = None if found is None else astuple(found)
    return json.dumps({"fingerprint": fingerprint, "sinks": _traces(sinks)})


def _traces(sinks: OpenedSinks) -> dict[str, dict[str, str]]:
    return {name: {**sink.trace, "target": sink.target or ""} for name, sink in sinks.each}


def _refuse_other_sinks(load: BatchLoad, recorded: str, sinks: OpenedSinks) -> None:
    facts = json.loads(recorded)
    if facts["sinks"] != _traces(sinks):
        raise CheckpointRefused(
            "LOAD_OTHER_SINKS",
            f"{load} stands in {', '.join(facts['sinks'])}, and these sinks are other ones, or at "
            "another place. Load into a further sink under an id of its own. Nothing was written.",
        )


def _compare(load: BatchLoad, recorded: str, fingerprint: Callable[[], Fingerprint] | None) -> None:
    if fingerprint is None:
        return
    written_before = json.loads(recorded)["fingerprint"]
    if written_before is None:
        logger.warning(
            "%s stands; whether it had these rows is not known: they were not compared, or each "
            "sink has rows=",
            load,
        )
        return
    before, now = Fingerprint(*written_before), fingerprint()
    if now != before:
        raise CheckpointRefused(
            "LOAD_OTHER_ROWS",
            f"{load} stands in every sink: {before.against(now)}. Give other rows another id. If "
            "they are the same but for a time of writing, say write(compare=False). Nothing was "
            "written.",
        )
