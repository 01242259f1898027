"""Whether and when a script is started again, told of failures at given times."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum.ops.run.plan import STANDBY_AFTER_S, STANDBY_LAST_S, standby_due_s
from exactum.ops.run.restart import JITTER, QUIET_S, FirstStarts, GiveUp, Restarts
from exactum.ops.run.values import duration

GAPS_S = st.lists(
    st.sampled_from([0, 7, QUIET_S - 1, QUIET_S, 2 * QUIET_S]), min_size=1, max_size=40
)


def steady(low: float, high: float) -> float:
    return 0.0


def delays(restarts: Restarts, failures_s: Sequence[float]) -> list[float | None]:
    """The delay after each failure, None where it gives up; nothing follows that."""
    found: list[float | None] = []
    for now_s in failures_s:
        delay_s = restarts.failed(now_s)
        if isinstance(delay_s, GiveUp):
            assert "(--restart-attempts " in delay_s.reason
            return [*found, None]
        found.append(delay_s)
    return found


@pytest.mark.parametrize("attempts", [0, 1, 3])
def test_so_many_restarts_in_a_row(attempts: int) -> None:
    """With 0 the first failure is the last one."""
    given = Restarts(2.5, 0.0, attempts)  # the longest delay is never below the first
    assert delays(given, range(10)) == [2.5] * attempts + [None]


def test_flinks_defaults() -> None:
    """Without end; a delay from 1 s to 1 min that grows by half."""
    assert delays(Restarts(uniform=steady), range(5)) == [1.0, 1.5, 2.25, 3.375, 5.0625]
    assert delays(Restarts(uniform=steady), range(3000))[-1] == 60.0


@given(gaps_s=GAPS_S, attempts=st.none() | st.integers(1, 5))
def test_a_delay_stays_between_the_first_and_the_longest(
    gaps_s: list[int], attempts: int | None
) -> None:
    """And it gives up only after so many failures in a row."""
    restarts = Restarts(2, 30, attempts)
    now_s, in_a_row, started_s = 0.0, 0, None
    for gap_s in gaps_s:
        now_s += gap_s
        if started_s is not None and now_s - started_s >= QUIET_S:
            in_a_row = 0
        delay_s = restarts.failed(now_s)
        assert isinstance(delay_s, GiveUp) == (attempts is not None and in_a_row >= attempts)
        if isinstance(delay_s, GiveUp):
            return
        assert 2 <= delay_s <= 30
        in_a_row, started_s = in_a_row + 1, now_s + delay_s


def test_a_delay_varies_and_begins_anew_after_a_quiet_time() -> None:
    """The quiet time counts from the end of the last delay."""
    restarts = Restarts(1, 2, uniform=lambda low, high: high)
    grown = [1 + JITTER, 1.5 * (1 + JITTER), 2.0, 2.0]
    assert delays(restarts, [0, 10, 20, 30]) == pytest.approx(grown)
    assert delays(restarts, [30 + 2 + QUIET_S - 0.01]) == [2.0]
    assert delays(restarts, [34 + 2 * QUIET_S]) == [1 + JITTER]


def test_a_script_that_never_gets_to_a_query_is_given_up() -> None:
    """After so many ends in all before any query began; not for what may mend by itself, nor once a
    query has begun or a life was long.
    """
    starts = FirstStarts(3)
    assert starts.ended(1, began=False, is_transient=False) is None
    assert starts.ended(1, began=False, is_transient=True) is None
    assert starts.ended(1, began=False, is_transient=False) is None
    assert isinstance(starts.ended(1, began=False, is_transient=False), GiveUp)
    for lived_s, began in ((1.0, True), (1000.0, False)):
        starts = FirstStarts(2)
        assert starts.ended(1, began=False, is_transient=False) is None
        assert starts.ended(lived_s, began=began, is_transient=False) is None
        assert [starts.ended(1, began=False, is_transient=False) for _ in range(9)] == [None] * 9


def test_a_standby_waits_for_the_first_query_and_not_for_ever() -> None:
    """On a slow machine two starts at once take longer than one after the other."""
    assert standby_due_s(turn_s=100.0, began_s=None) == 100.0 + STANDBY_LAST_S
    assert standby_due_s(turn_s=100.0, began_s=145.0) == 145.0 + STANDBY_AFTER_S


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("10 s", 10),
        ("1 min", 60),
        ("500 ms", 0.5),
        ("2h", 7200),
        ("1 d", 86400),
        ("1.5 seconds", 1.5),
        (" 3 S ", 3),
    ],
)
def test_durations(text: str, expected_s: float) -> None:
    """Durations are written as in Flink's configuration."""
    assert duration(text) == expected_s


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-1 s", "1 fortnight", "1 s 2 s", "ten s", "nan s", "9" * 400 + " d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A bare number too: Flink takes it for milliseconds, most people for seconds."""
    with pytest.raises(click.BadParameter, match="unit"):
        duration(text)
