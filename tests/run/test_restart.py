"""The restart strategies, told of failures at given times."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum.errors import SettingRefused
from exactum.ops.run.command import strategy_of
from exactum.ops.run.plan import STANDBY_AFTER_S, STANDBY_LAST_S, standby_due_s
from exactum.ops.run.restart import (
    ExponentialDelay,
    FirstStarts,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartStrategy,
    StartAgain,
)
from exactum.ops.run.values import duration

GAPS_S = st.lists(st.integers(0, 40), min_size=1, max_size=40)


def delays(strategy: RestartStrategy, failures_s: Sequence[float]) -> list[float | None]:
    """The delay after each failure, None where it gives up; nothing follows that."""
    found: list[float | None] = []
    for now_s in failures_s:
        verdict = strategy.failed(now_s)
        found.append(verdict.delay_s if isinstance(verdict, StartAgain) else None)
        if isinstance(verdict, GiveUp):
            assert verdict.reason
            break
    return found


def test_none_never_restarts() -> None:
    """Without a strategy the first failure is the last one."""
    assert delays(NoRestart(), [0]) == [None]


@pytest.mark.parametrize("attempts", [0, 1, 3])
def test_fixed_delay_restarts_so_often_in_all(attempts: int) -> None:
    """Exactly ``attempts`` restarts, however far apart the failures are."""
    assert delays(FixedDelay(attempts, 2.5), [1e6 * n for n in range(10)]) == [2.5] * attempts + [
        None
    ]


def test_flinks_defaults() -> None:
    """One restart after a second; a delay from 1 s to 1 min that grows by half."""
    assert delays(FixedDelay(), [0, 1]) == [1.0, None]
    backoff = ExponentialDelay(uniform=lambda low, high: 0.0)
    assert delays(backoff, range(5)) == [1.0, 1.5, 2.25, 3.375, 5.0625]


@given(gaps_s=GAPS_S, jitter=st.floats(0, 1), attempts=st.none() | st.integers(1, 5))
def test_exponential_delay_stays_between_its_backoffs(
    gaps_s: list[int], jitter: float, attempts: int | None
) -> None:
    """Every delay is between the two backoffs, and it gives up only after so many failures in a
    row.
    """
    strategy = ExponentialDelay(2, 30, 2, 20, jitter, attempts)
    now_s, in_a_row, started_s = 0.0, 0, None
    for gap_s in gaps_s:
        now_s += gap_s
        if started_s is not None and now_s - started_s >= 20:
            in_a_row = 0
        verdict = strategy.failed(now_s)
        assert isinstance(verdict, GiveUp) == (attempts is not None and in_a_row >= attempts)
        if isinstance(verdict, GiveUp):
            return
        assert 2 <= verdict.delay_s <= 30
        in_a_row, started_s = in_a_row + 1, now_s + verdict.delay_s


def test_exponential_delay_grows_varies_and_begins_anew() -> None:
    """It doubles up to the most, by as much more as the jitter says, and a quiet time brings it
    back to the first.
    """

    def highest(low: float, high: float) -> float:
        return high

    strategy = ExponentialDelay(1, 10, 2, 100, 0.25, uniform=highest)
    assert delays(strategy, [0, 10, 20, 30, 40]) == [1.25, 2.5, 5.0, 10.0, 10.0]
    assert delays(strategy, [50 + 99.99]) == [10.0]  # 40 + 10 + 99.99
    assert delays(strategy, [159.99 + 100]) == [1.25]


def test_exponential_delay_does_not_overflow() -> None:
    """After thousands of failures the delay is still the longest one."""
    strategy = ExponentialDelay(1, 10, 9.0, jitter_factor=0)
    assert delays(strategy, range(3000))[-1] == 10


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
    "make",
    [
        lambda: FixedDelay(-1),
        lambda: FirstStarts(0),
        lambda: FixedDelay(1, -1.0),
        lambda: ExponentialDelay(0.0),
        lambda: ExponentialDelay(5, 4),
        lambda: ExponentialDelay(backoff_multiplier=1.0),
        lambda: ExponentialDelay(backoff_multiplier=float("nan")),
        lambda: ExponentialDelay(jitter_factor=1.1),
        lambda: ExponentialDelay(attempts_before_reset_backoff=0),
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(make: object) -> None:
    """Bad settings are one error before anything runs, with the setting's name."""
    with pytest.raises(SettingRefused) as refused:
        make()  # type: ignore[operator]
    assert refused.value.code == "COMMAND_ARGUMENT"
    settings = ("fixed-delay.", "exponential-delay.", "start-attempts")
    assert any(setting in str(refused.value) for setting in settings)


def test_options_reach_their_strategy() -> None:
    """The command line's options arrive at the strategy that they name, and no other one minds
    them.
    """
    options: dict[str, float | int | None] = {
        "fixed_delay_attempts": 7,
        "fixed_delay_delay": 0.5,
        "exponential_delay_initial_backoff": 2.0,
        "exponential_delay_max_backoff": 20.0,
        "exponential_delay_backoff_multiplier": 3.0,
        "exponential_delay_reset_backoff_threshold": 30.0,
        "exponential_delay_jitter_factor": 0.0,
        "exponential_delay_attempts_before_reset_backoff": 4,
    }
    assert strategy_of("fixed-delay", options) == FixedDelay(7, 0.5)
    assert strategy_of("exponential-delay", options) == ExponentialDelay(
        2.0, 20.0, 3.0, 30.0, 0.0, 4
    )
    assert strategy_of("none", options) == NoRestart()


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
