"""What the plots are drawn from adds up, and says nothing of what is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.monitor import words
from exactum.monitor.fact import Fact
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.series import HOUR_MS, POINTS_MAX, STEP_MS, Series
from tests.kit.dashboard.checkpoints import MadeCheckpoint

MADE = MadeCheckpoint(Path("/nowhere"))
END_MS = 1_800_000_000_000 // STEP_MS * STEP_MS


def test_an_hour_adds_up() -> None:
    """Rows in a second, mean phases, the lag of all topics; a lag that nobody looks at ends."""
    series, stats = Series(), QueryStats(MADE.query_id)
    begin = END_MS - 100_000

    def tell(fact: Fact) -> None:
        stats.observe(fact)
        series.observe(fact, stats.lags)

    tell(MADE.started(begin))
    for number in range(10):
        tell(
            MADE.completed(
                begin + number * 1_000, number, 50, phase_ms={"write": 10.0 + number, "commit": 5.0}
            )
        )
    tell(MADE.lag(begin + 1_000, 30, 2.5))
    tell(MADE.lag(begin + 1_001, 12, 0.5, topic="other"))
    plot = series.hour(END_MS)
    assert plot["times"][0] == begin / 1_000
    assert plot["times"][-1] == (END_MS - 2 * STEP_MS) / 1_000
    assert plot["rows"][:3] == [50.0, 50.0, 0.0]
    assert sum(plot["rows"]) * STEP_MS / 1_000 == 500
    assert plot["phases"]["write"][:3] == [12.0, 17.0, None]
    assert plot["lag_records"][:6] == [42.0, 42.0, 42.0, 42.0, None, None]
    assert plot["lag_seconds"][:2] == [2.5, 2.5]
    assert plot["marks"] == [begin / 1_000]


def test_an_hour_is_bounded_and_the_oldest_goes() -> None:
    series = Series()
    for at_ms in range(END_MS - 3 * HOUR_MS, END_MS, 1_000):
        series.observe(MADE.completed(at_ms, at_ms, 1), ())
    plot = series.hour(END_MS)
    assert len(plot["times"]) == POINTS_MAX
    assert plot["times"][0] == (END_MS - STEP_MS - HOUR_MS) / 1_000
    assert set(plot["rows"]) == {1.0}


def test_phases_are_drawn_on_between_micro_batches_of_one_run() -> None:
    """A query with few micro-batches has a picture, and an outage is a gap in it."""
    series = Series()
    begin = END_MS - 300_000
    series.observe(MADE.started(begin), ())
    for second in (0, 60, 130):
        if second == 130:
            series.observe(MADE.started(begin + 100_000), ())
        series.observe(MADE.completed(begin + second * 1_000, second, phase_ms={"write": 7.0}), ())
    write = series.hour(END_MS)["phases"]["write"]
    drawn = [index * STEP_MS // 1_000 for index, ms in enumerate(write) if ms == 7.0]
    assert drawn == [*range(0, 65, 5), 130]


@pytest.mark.parametrize(
    ("given", "shown"),
    [(0, "0 s"), (0.0, "0 s"), (0.42, "420 ms"), (0.0004, "0.4 ms"), (0.9996, "1 s"), (9.96, "10 s"), (3.25, "3.2 s"), (59.6, "1 min"), (200, "3 min 20 s"), (3_600, "1 h"), (90_000, "1 d 1 h"), (604_800, "7 d"), (-2, "\N{MINUS SIGN}2 s"), (None, "\N{EN DASH}"), ("x", "\N{EN DASH}"), (float("nan"), "\N{EN DASH}")],
)  # fmt: skip
def test_durations_are_written_as_people_say_them(given: object, shown: str) -> None:
    assert words.duration(given) == shown
