"""Writes the protocol's events to ``logging.getLogger("exactum")``, one line each, and to the
user's listener.
"""

from __future__ import annotations

import logging

from exactum import events
from exactum.monitor.recorder import RECORDER
from exactum.monitor.words import sentence_of
from exactum.spark.supervised import process

logger = logging.getLogger("exactum")

WARNINGS = (
    events.UpstreamStalled,
    events.UpstreamMoved,
    events.EpochAbandoned,
    events.TransactionsExpired,
    events.TransactionsSalvaged,
    events.FormerSinkOutOfReach,
    events.IncarnationFenced,
    events.RowsSkipped,
    events.RowsDeadLettered,
)
OF_A_RESTART = (events.RunStarted, events.EpochRedelivered, events.LeftoversSwept)


def level_of(event: events.Event) -> int:
    """DEBUG for every epoch, INFO for what a restart brings, WARNING for what a person may ask
    about.
    """
    if isinstance(event, WARNINGS):
        return logging.WARNING
    return logging.INFO if isinstance(event, OF_A_RESTART) else logging.DEBUG


def listener(on_event: events.Listener | None) -> events.Listener:
    """A listener of one run that logs, then calls ``on_event``.

    An error of ``on_event`` is logged and goes no further: between two steps of an epoch it would
    look like an error of the protocol.
    """
    run: events.RunStarted | None = None
    report = watchers()

    def listen(event: events.Event) -> None:
        nonlocal run
        if isinstance(event, events.RunStarted):
            run = event
        level = level_of(event)
        if logger.isEnabledFor(level):
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
                sentence_of(type(event).__name__, vars(event)) or event,
                extra=extra,
            )
        report(event)
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:  # a listener must not decide about an epoch
            logger.exception("on_event failed on %s", event)

    return listen


def watchers() -> events.Listener:
    """Whoever looks on in this process, and its supervisor if it has one. Never blocks."""
    supervised = process.current()

    def report(event: events.Event) -> None:
        RECORDER.observe(event)
        if supervised is not None:
            supervised.report_event(event)

    return report
