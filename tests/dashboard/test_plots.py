"""What the plots are drawn from adds up, and says nothing of what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from exactum.monitor import words
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.series import HOUR_MS, POINTS_MAX, STEP_MS, Series
from tests.kit.monitor.facts import QUERY, Story

END_MS = 1_800_000_000_000 // STEP_MS * STEP_MS


def drawn(story: Story) -> Any:
    series, stats = Series(), QueryStats(QUERY)
    for fact in story.facts:
        stats.observe(fact)
        series.observe(fact, stats.lags)
    return series.hour(END_MS)


def test_an_hour_adds_up() -> None:
    """Rows in a second, mean phases, the lag of all topics; a lag that nobody looks at ends."""
    begin = END_MS - 100_000
    story = Story(begin).starts()
    for number in range(10):
        story.at(begin + number * 1_000).completes(number, 50, write=10.0 + number, commit=5.0)
    story.at(begin + 1_000).lag(30, 2.5).at(begin + 1_001).lag(12, 0.5, topic="other")
    plot = drawn(story)
    assert plot["times"][0] == begin / 1_000
    assert plot["times"][-1] == (END_MS - 2 * STEP_MS) / 1_000
    assert plot["rows"][:3] == [50.0, 50.0, 0.0]
    assert sum(plot["rows"]) * STEP_MS / 1_000 == 500
    assert plot["phases"]["write"][:3] == [12.0, 17.0, None]
    assert plot["lag_records"][:6] == [42.0, 42.0, 42.0, 42.0, None, None]
    assert plot["lag_seconds"][:2] == [2.5, 2.5]
    assert plot["marks"] == [begin / 1_000]


def test_an_hour_is_bounded_and_the_oldest_goes() -> None:
    story = Story()
    for at_ms in range(END_MS - 3 * HOUR_MS, END_MS, 1_000):
        story.at(at_ms).completes(at_ms, 1)
    plot = drawn(story)
    assert len(plot["times"]) == POINTS_MAX
    assert plot["times"][0] == (END_MS - STEP_MS - HOUR_MS) / 1_000
    assert set(plot["rows"]) == {1.0}


def test_phases_are_drawn_on_between_micro_batches_of_one_run() -> None:
    """A query with few micro-batches has a picture, and an outage is a gap in it."""
    begin = END_MS - 300_000
    story = Story(begin).starts().completes(0, write=7.0)
    story.at(begin + 60_000).completes(1, write=7.0)
    story.at(begin + 100_000).starts()
    story.at(begin + 130_000).completes(2, write=7.0)
    write = drawn(story)["phases"]["write"]
    shown = [index * STEP_MS // 1_000 for index, ms in enumerate(write) if ms == 7.0]
    assert shown == [*range(0, 65, 5), 130]


@pytest.mark.parametrize(
    ("given", "shown"),
    [(0, "0 s"), (0.0, "0 s"), (0.42, "420 ms"), (0.0004, "0.4 ms"), (0.9996, "1 s"), (9.96, "10 s"), (3.25, "3.2 s"), (59.6, "1 min"), (200, "3 min 20 s"), (3_600, "1 h"), (90_000, "1 d 1 h"), (604_800, "7 d"), (-2, "\N{MINUS SIGN}2 s"), (None, "\N{EN DASH}"), ("x", "\N{EN DASH}"), (float("nan"), "\N{EN DASH}")],
)  # fmt: skip
def test_durations_are_written_as_people_say_them(given: object, shown: str) -> None:
    assert words.duration(given) == shown
