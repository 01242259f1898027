"""Writes the protocol's events to ``logging.getLogger("exactum")``, one line each, and to the user's listener."""

from __future__ import annotations

import logging

from exactum import events

logger = logging.getLogger("exactum")


def level_of(event: events.Event) -> int:
    """DEBUG for every epoch, INFO for what a restart brings, WARNING for what a person may ask about."""
    if isinstance(event, events.EpochAbandoned | events.TransactionsExpired | events.TransactionsSalvaged):
        return logging.WARNING
    if isinstance(event, events.IncarnationFenced):
        return logging.WARNING
    if isinstance(event, events.DoorClosed | events.EpochRedelivered | events.LeftoversSwept):
        return logging.INFO
    return logging.DEBUG


def text_of(event: events.Event) -> str:
    """One line for a person, without the query, which the log line names anyway."""
    match event:
        case events.DoorClosed():
            return f"taken over in slot {event.attempt}; {event.leftovers} leftover transactions aborted"
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
            return f"{event.participant}: decided but undone outside before the commit ({_size(event)})"
        case events.TransactionsSalvaged():
            return f"{event.participant}: read back and written again, nothing is lost ({_size(event)})"
        case events.LeftoversSwept():
            return f"{event.participant}: {event.transactions} undecided transactions aborted"
        case events.IncarnationFenced():
            return f"fenced: incarnation {event.by} has taken over"
    return str(event)


def listener(on_event: events.Listener | None) -> events.Listener:
    """A listener that logs, then calls ``on_event``.

    An error of ``on_event`` is logged and goes no further: between two steps of an epoch it would look
    like an error of the protocol.
    """

    def listen(event: events.Event) -> None:
        level = level_of(event)
        if logger.isEnabledFor(level):
            logger.log(level, "query %s, epoch %d: %s", event.query_id, event.batch_id, text_of(event))
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:  # a listener must not decide about an epoch
            logger.exception("on_event failed on %s", event)

    return listen


def _size(
    event: events.EpochDecided
    | events.EpochCompleted
    | events.EpochRedelivered
    | events.TransactionsExpired
    | events.TransactionsSalvaged,
) -> str:
    return f"{event.rows} rows in {event.transactions} transactions"
