"""A query as numbers: every event counts for something or is known to count for nothing."""

from __future__ import annotations

import logging
from dataclasses import MISSING, fields
from typing import Any

import pytest

from exactum import events
from exactum.monitor.fact import SUPERVISOR_FACTS, Fact
from exactum.monitor.query_stats import HANDLERS, InDoubt
from exactum.monitor.script_stats import QUERIES_MAX, ScriptStats
from exactum.monitor.words import sentence_of
from tests.kit.monitor.facts import QUERY, Story

WITHOUT_NUMBERS = {
    "ControlChanged",
    "FormerSinkOutOfReach",
    "ProcessStarted",
    "SupervisorEnds",
    "OperatorFenced",
}
"""They are in the log and in the history, and change no number."""
VALUES: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "float": 2.5,
    "bool": True,
    "str | None": "text",
    "int | None": 3,
    "float | None": 2.5,
    "tuple[str | None, ...]": ("text",),
    "tuple[int, ...]": (3,),
    "dict[str, float]": {"write": 2.5},
    "dict[str, int]": {"kafka": 3},
    "dict[str, str]": {"in": "localhost:9092"},
    "dict[str, dict[str, float]]": {"kafka": {"commit": 2.5}},
}
KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
]


def an_event(kind: type[events.Event], *, bare: bool = False) -> events.Event:
    """With a value in each field; ``bare``: only in those that must be given."""
    given = {
        each.name: VALUES[str(each.type)]
        for each in fields(kind)
        if not bare or (each.default is MISSING and each.default_factory is MISSING)
    }
    return kind(**{**given, "query_id": QUERY})


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event(
    kind: type[events.Event], bare: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is a line for a person, goes through the history, and changes a number or is known not
    to. One without the fields that have a default is taken, too.
    """
    event = an_event(kind, bare=bare)
    assert sentence_of(kind.__name__, vars(event))
    fact = Fact.from_line(Fact.of(event, 5).to_line())
    assert fact is not None
    stats = ScriptStats()
    with caplog.at_level(logging.WARNING, "exactum"):
        stats.observe(Fact(1, "Unheard", {"query_id": QUERY}))
        stats.observe(fact)
    assert caplog.text == ""
    assert stats.queries[QUERY].observed_ms == 5
    handled = kind.__name__ in HANDLERS
    assert handled != (kind.__name__ in WITHOUT_NUMBERS)


def test_every_supervisors_fact() -> None:
    unknown = {name for name in SUPERVISOR_FACTS if name not in HANDLERS}
    assert unknown <= WITHOUT_NUMBERS


def test_a_fact_that_lacks_a_field_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """It came from another version: the picture lacks it, and nothing else."""
    stats = ScriptStats()
    with caplog.at_level(logging.WARNING, "exactum"):
        stats.observe(Fact(1, "EpochCompleted", {"query_id": QUERY}))
        stats.observe(Fact(2, "RowsSkipped", {"query_id": QUERY, "rows": 4}))
    assert "EpochCompleted" in caplog.text
    assert stats.queries[QUERY].rows_skipped == 4


def test_a_life_in_numbers() -> None:
    """What epochs, restarts and redeliveries add up to, and how a batch is in doubt and is not."""
    story = Story().starts().epoch(0).begins(1, 20).decides(1)
    stats = story.stats
    assert stats.in_doubt == InDoubt(1, story.now_ms, 2, 10)
    story.dies().tell("ProcessRestarts", delay_s=1.0, disposition="")
    assert (stats.is_running, stats.at_hand, stats.in_doubt is not None) == (False, None, True)
    story.tell("EpochRedelivered", batch_id=1, attempt=0, transactions=2, rows=10, rows_by_sink={})
    story.starts("i2")
    assert (stats.in_doubt, stats.is_running, stats.runs) == (None, True, 2)
    assert (stats.epoch, stats.rows, stats.rows_read) == (1, 20, 30)
    assert (stats.epochs["committed"], stats.epochs["redelivered"]) == (1, 1)
    assert stats.restarts == {"died": 1}
    story.ends("Fenced", "fenced", "another one", incarnation="i1")  # the older run's last words
    assert stats.is_running


def test_queries_are_bounded() -> None:
    """Those heard of longest ago go, unless they run; facts of no query change nothing."""
    stats = ScriptStats()
    stats.observe(Fact(0, "RunStarted", {**Story().starts().facts[0].fields, "query_id": "runs"}))
    for number in range(QUERIES_MAX + 20):
        stats.observe(Fact(number, "RowsSkipped", {"query_id": f"q{number}", "rows": 1}))
    stats.observe(Fact(0, "RowsSkipped", {"rows": 1}))
    assert len(stats.queries) == QUERIES_MAX
    assert "runs" in stats.queries
    assert "q0" not in stats.queries
    assert f"q{QUERIES_MAX + 19}" in stats.queries
