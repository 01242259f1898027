"""Log records as JSON, one object per line, for those who collect logs by machine."""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

from exactum.events import Event


class JsonFormatter(logging.Formatter):
    """A formatter for ``logging.getLogger("exactum")``; a record of any logger is shown.

    Every line has ``timestamp`` (ISO-8601, UTC), ``level``, ``logger`` and ``message``, and
    ``exception`` and ``stack`` (text) where the record has them. A record of an event also has
    ``query_id``, ``batch_id``, ``incarnation``, ``query_name`` and ``run_id`` (None before the run
    has told them), ``event`` (its class's name) and ``event_fields``, the event's own fields.

    What JSON cannot show is shown as its ``repr``. Lines are ASCII: a line break or a lone
    surrogate in a value is escaped.
    """

    def __init__(self) -> None:
        """There is no format to choose: logging's own parameters are not taken."""
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        event = getattr(record, "exactum_event", None)
        if isinstance(event, Event):
            line |= {
                "query_id": event.query_id,
                "query_name": getattr(record, "exactum_query_name", None),
                "batch_id": event.batch_id,
                "run_id": getattr(record, "exactum_run_id", None),
                "incarnation": event.incarnation,
                "event": type(event).__name__,
                "event_fields": {
                    one.name: getattr(event, one.name)
                    for one in fields(event)
                    if one.name not in ("query_id", "batch_id", "incarnation")
                },
            }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(_shown(line))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  (arguments that do not fit must not cost the line)
        return f"{record.msg!r} % {_repr(record.args)}"


def _shown(value: Any) -> Any:
    """``value`` in JSON's own types; NaN and the infinities, which JSON has not, as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, dict):
        return {str(key): _shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return _repr(value)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  (a broken __repr__ must not cost the line)
        return f"<{type(value).__name__} that cannot be shown>"
