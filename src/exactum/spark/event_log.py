"""Writes the protocol's events to ``logging.getLogger("exactum")``, one line each, and to the
user's listener.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone

from exactum import events
from exactum.checkpoint.layout import SINKS
from exactum.monitor.recorder import RECORDER
from exactum.spark.supervised import process

logger = logging.getLogger("exactum")


def level_of(event: events.Event) -> int:
    """DEBUG for every epoch, INFO for what a restart brings, WARNING for what a person may ask
    about.
    """
    if isinstance(event, events.UpstreamStalled | events.UpstreamMoved):
        return logging.WARNING
    if isinstance(
        event, events.EpochAbandoned | events.TransactionsExpired | events.TransactionsSalvaged
    ):
        return logging.WARNING
    if isinstance(
        event,
        events.FormerSinkOutOfReach
        | events.IncarnationFenced
        | events.RowsSkipped
        | events.RowsDeadLettered,
    ):
        return logging.WARNING
    if isinstance(event, events.RunStarted | events.EpochRedelivered | events.LeftoversSwept):
        return logging.INFO
    return logging.DEBUG


def text_of(event: events.Event) -> str:
    """One line for a person, without the query, which the log line names anyway."""
    match event:
        case events.RunStarted():
            return _beginning(event)
        case events.Progress():
            return _progress(event)
        case events.QueryWaits():
            return f"has begun no micro-batch yet: {event.doing}"
        case events.RunEnded():
            how = f"with {event.error}: {event.reason}" if event.error else "stopped"
            return f"the run is over, {how}"
        case events.EpochBegan():
            count = event.input_records
            return "begins" if count is None else f"begins, {count} records to read"
        case events.InputLag():
            return (
                f"{event.topic}: {event.lag_records} records not read yet"
                + ("" if event.lag_seconds is None else f", for {event.lag_seconds:.1f} s")
                + f"; {event.lso_gap_records} behind open transactions"
            )
        case events.OlderRunsFenced():
            return (
                f"taken over in slot {event.attempt}; {event.leftovers} leftover transactions "
                "aborted"
            )
        case events.EpochRedelivered():
            return f"decided by an earlier run; its commit was sent again ({_size(event)})"
        case events.EpochDecided():
            return f"decided ({_size(event)})"
        case events.EpochCompleted():
            phases = ", ".join(f"{name} {ms:.1f} ms" for name, ms in event.phase_ms.items())
            return f"completed ({_size(event)}; {phases})"
        case events.EpochAbandoned():
            return f"attempt {event.attempt} was abandoned: {event.reason}"
        case events.TransactionsExpired():
            return (
                f"{event.participant}: decided but undone outside before the commit "
                f"({_size(event)})"
            )
        case events.TransactionsSalvaged():
            return (
                f"{event.participant}: read back and written again, nothing is lost "
                f"({_size(event)})"
            )
        case events.LeftoversSwept():
            return f"{event.participant}: {event.transactions} undecided transactions aborted"
        case events.FormerSinkOutOfReach():
            return (
                f"the sink {event.participant!r} ({event.place}) is not among this query's sinks "
                "any more, and none of them reaches it: what its tasks left open stays until the "
                "target times it out or you settle it. Start once with it, or remove it from "
                f"{SINKS} in the checkpoint's folder once nothing of it is open"
            )
        case events.ControlChanged():
            return (
                f"the control stream {event.topic!r} has other rules from here on ({event.keys} "
                "keys)"
            )
        case events.RowsDeadLettered():
            return f"{event.rows} rows stand in the dead letters"
        case events.RowsSkipped():
            return f"{event.rows} records that could not be decoded were skipped"
        case events.UpstreamStalled():
            return _stalled(event)
        case events.UpstreamMoved():
            return f"{event.topic}-{event.partition} is no longer held back upstream"
        case events.IncarnationFenced():
            return f"fenced: incarnation {event.by} has taken over"
    return str(event)


def listener(on_event: events.Listener | None) -> events.Listener:
    """A listener that logs, then calls ``on_event``.

    An error of ``on_event`` is logged and goes no further: between two steps of an epoch it would
    look like an error of the protocol.
    """

    runs: dict[str, events.RunStarted] = {}  # by query: one sink may serve several

    def listen(event: events.Event) -> None:
        if isinstance(event, events.RunStarted):
            runs[event.query_id] = event
        level = level_of(event)
        if logger.isEnabledFor(level):
            run = runs.get(event.query_id)
            if run is not None and run.incarnation != event.incarnation:
                run = None  # the new run has not told its name yet
            extra = {
                "exactum_event": event,
                "exactum_run_id": run and run.run_id,
                "exactum_query_name": run and run.name,
            }
            logger.log(
                level,
                "query %s, epoch %d: %s",
                event.query_id,
                event.batch_id,
                text_of(event),
                extra=extra,
            )
        tell_onlookers(event)
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:  # a listener must not decide about an epoch
            logger.exception("on_event failed on %s", event)

    return listen


def tell_onlookers(event: events.Event) -> None:
    """To whoever looks on in this process, and to its supervisor if it has one. Never blocks."""
    RECORDER.hear(event)
    supervised = process.current()
    if supervised is not None:
        supervised.tell_event(event)


def _beginning(event: events.RunStarted) -> str:
    called = f"{event.name!r}, " if event.name else ""
    offsets = (
        "; ".join(str(source) for source in event.offsets) or "the start position (new checkpoint)"
    )
    redelivered = ", ".join(str(batch_id) for batch_id in event.redelivered)
    recovery = f"redelivered epochs {redelivered}" if redelivered else "nothing to redeliver"
    return (
        f"{event.guarantee}: run {event.run_id} ({called}incarnation {event.incarnation}) begins "
        f"from the checkpoint {event.checkpoint} at {offsets}; {recovery}; {event.swept} leftover "
        "transactions aborted"
    )


def _progress(event: events.Progress) -> str:
    lag = "" if event.lag_records is None else f", lag {event.lag_records} records"
    state = "" if event.state_rows is None else f", state {event.state_rows} rows"
    return f"{event.input_rows} rows in, {event.processed_rows_per_s:.0f} rows/s{lag}{state}"


def _stalled(event: events.UpstreamStalled) -> str:
    since = datetime.fromtimestamp(event.since_ms / 1000, timezone.utc).isoformat(
        timespec="seconds"
    )
    known = (
        f"producer id {event.producer_id}, transactional id {event.transactional_id or 'unknown'}"
    )
    who = "an unknown producer" if event.producer_id is None else known
    return (
        f"{event.topic}-{event.partition} is held back upstream at offset "
        f"{event.last_stable_offset} since {since}: {event.lso_gap} offsets lie behind an open "
        f"transaction of {who}"
    )


def _size(
    event: events.EpochDecided
    | events.EpochCompleted
    | events.EpochRedelivered
    | events.TransactionsExpired
    | events.TransactionsSalvaged,
) -> str:
    return f"{event.rows} rows in {event.transactions} transactions"
