"""A log record is one line of JSON, whatever is in it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

import exactum
from exactum import events
from exactum.spark import event_log


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    texts = [exactum.JsonFormatter().format(record) for record in caplog.records]
    assert not any("\n" in text for text in texts)
    return [json.loads(text) for text in texts]


def test_an_event_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    """A later event of the run names the run and the query that began it."""
    caplog.set_level(logging.DEBUG, "exactum")
    listen = event_log.listener(None)
    listen(events.RunStarted("q", 7, "i", "r", "orders", "exactly-once", "/c", (None,), (5,), 0))
    listen(events.EpochCompleted("q", 7, "i", 0, 2, 30, {"write": 1.5}))
    begun, completed = lines_of(caplog)
    assert begun["event"] == "RunStarted"
    assert begun["event_fields"]["redelivered"] == [5]
    assert completed["event"] == "EpochCompleted"
    assert completed["timestamp"].endswith("+00:00")
    assert (completed["level"], completed["logger"]) == ("DEBUG", "exactum")
    named = {name: completed[name] for name in ("query_id", "query_name", "batch_id", "run_id")}
    assert named == {"query_id": "q", "query_name": "orders", "batch_id": 7, "run_id": "r"}
    assert completed["event_fields"] == {
        "attempt": 0,
        "transactions": 2,
        "rows": 30,
        "phase_ms": {"write": 1.5},
        "rows_by_sink": {},
        "sink_phase_ms": {},
    }


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("two\nlines %s", ("\ud800",)),
        ("%d", ("not a number",)),
        ("%s", (Unshowable(),)),
    ],
)
def test_a_foreign_record_is_one_line(message: str, arguments: tuple[Any, ...]) -> None:
    record = logging.LogRecord("other", logging.INFO, "f", 1, message, arguments, None)
    text = exactum.JsonFormatter().format(record)
    assert text.isascii()
    assert "\n" not in text
    assert json.loads(text)["logger"] == "other"
    assert "event" not in json.loads(text)


def test_values_that_json_has_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "exactum")
    odd: dict[str, Any] = {"a": float("nan"), "b": Unshowable()}
    event_log.listener(None)(events.EpochCompleted("q", 1, "i", 0, 0, 0, {}))
    caplog.records[0].exactum_event = events.EpochCompleted("q", 1, "i", 0, 0, 0, odd)
    shown = lines_of(caplog)[0]["event_fields"]["phase_ms"]
    assert shown == {"a": "nan", "b": "<Unshowable that cannot be shown>"}


def test_an_exception_as_text() -> None:
    try:
        raise ValueError("bad\nrow")
    except ValueError:
        record = logging.LogRecord("exactum", 40, "f", 1, "failed", None, sys.exc_info())
    text = exactum.JsonFormatter().format(record)
    assert "\n" not in text
    assert "ValueError: bad\nrow" in json.loads(text)["exception"]
