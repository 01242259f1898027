"""What the end of a script means, and whether and when it is started again: told of ends and failures at
given times.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum import errors
from exactum.ops.run.ending import HALTING, RELATED_S, Meaning, Report, ending
from exactum.ops.run.plan import STANDBY_AFTER_S, STANDBY_LAST_S, standby_due_s
from exactum.ops.run.restart import JITTER, QUIET_S, FirstStarts, GiveUp, Restarts
from exactum.ops.run.script_facts import ScriptFacts
from exactum.ops.run.values import duration
from tests.kit.monitor.facts import Story

GAPS_S = st.lists(
    st.sampled_from([0, 7, QUIET_S - 1, QUIET_S, 2 * QUIET_S]), min_size=1, max_size=40
)


def delays(restarts: Restarts, failures_s: Iterable[float]) -> list[float | GiveUp]:
    return [restarts.failed(now_s) for now_s in failures_s]


def test_flinks_defaults() -> None:
    """Without end; a delay from 1 s to 1 min that grows by half."""
    without_jitter = Restarts(uniform=lambda low, high: 0.0)
    found = delays(without_jitter, range(3000))
    assert (found[:5], found[-1]) == ([1.0, 1.5, 2.25, 3.375, 5.0625], 60.0)


@given(gaps_s=GAPS_S, attempts=st.none() | st.integers(0, 5))
def test_a_delay_stays_between_the_first_and_the_longest(
    gaps_s: list[int], attempts: int | None
) -> None:
    """And it gives up only after so many failures in a row; with 0 the first one is the last."""
    restarts = Restarts(2, 30, attempts)
    now_s, in_a_row, started_s = 0.0, 0, None
    for gap_s in gaps_s:
        now_s += gap_s
        if started_s is not None and now_s - started_s >= QUIET_S:
            in_a_row = 0
        delay_s = restarts.failed(now_s)
        assert isinstance(delay_s, GiveUp) == (attempts is not None and in_a_row >= attempts)
        if isinstance(delay_s, GiveUp):
            assert f"(--restart-attempts {attempts})" in delay_s.reason
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


ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ExactumError)
]
NOW_S = 1000.0


def last_error(name: str, message: str, queries: str = "") -> Report:
    return Report(name, message, None, frozenset(queries), NOW_S)


UNRELATED = last_error("IndexError", "list index out of range")


def report(kind: type[errors.ExactumError], ago_s: float = 1.0, queries: str = "q") -> Report:
    return Report(kind.__name__, "because", kind.disposition, frozenset(queries), NOW_S - ago_s)


def test_status_0_is_done() -> None:
    """A script that ends well is done, also when a query of it has failed before: it has dealt
    with that. Where it did so just now it may have forgotten it: that is told.
    """
    assert ending(0, {}, None, NOW_S).text == "it ended by itself"
    failed = ending(0, {"q": report(errors.Fenced)}, None, NOW_S)
    assert failed.meaning is Meaning.DONE
    assert "query q had just failed with Fenced: because" in failed.text
    long_ago = {"q": report(errors.Fenced, RELATED_S + 1)}
    assert ending(0, long_ago, None, NOW_S) == ending(0, {}, None, NOW_S)


REFUSED = {"q": report(errors.SettingRefused, RELATED_S + 1)}
FENCED = {"q": report(errors.Fenced)}


@pytest.mark.parametrize(
    ("status", "reports", "last", "meaning"),
    [
        # A death without a word.
        *((status, {}, None, Meaning.RESTART) for status in (1, 137, -9, -signal.SIGSEGV, -250)),
        # A script that goes on for long has dealt with the error, whatever status it exits with.
        (1, REFUSED, None, Meaning.RESTART),
        # Who cleans up for minutes and then raises the query's error ends with that.
        (1, REFUSED, last_error("RuntimeError", "because", "q"), Meaning.HALT),
        # Who was fenced just now does not take the query back, however the script ends then.
        (1, FENCED, UNRELATED, Meaning.HALT),
        (1, FENCED, None, Meaning.HALT),
        (-signal.SIGKILL, FENCED, None, Meaning.HALT),
    ],
)
def test_what_an_end_means(
    status: int, reports: dict[str, Report], last: Report | None, meaning: Meaning
) -> None:
    assert ending(status, reports, last, NOW_S).meaning is meaning


@pytest.mark.parametrize("kind", ALL)
def test_the_disposition_of_the_error_decides(kind: type[errors.ExactumError]) -> None:
    """Fenced and halting errors are not followed by a restart, all others are; the reason is in the
    text. Of whichever query the error is, and whether the script ends with it, with another one
    that carries it, or by sys.exit().
    """
    halts = kind.disposition in HALTING
    reports = {"a": report(errors.EpochAborted), "b": report(kind)}
    own = report(kind, queries="")
    carrying = last_error("StreamingQueryException", "...", "b")
    for told, last in ((reports, None), ({}, own), (reports, carrying)):
        how = ending(1, told, last, NOW_S)
        assert how.meaning is (Meaning.HALT if halts else Meaning.RESTART)
        assert how.is_transient is not halts
        assert f"{kind.__name__}: because" in how.text


@pytest.mark.parametrize(("status", "last"), [(1, UNRELATED), (-signal.SIGKILL, None)])
def test_an_error_that_the_script_has_dealt_with_is_not_what_it_dies_of(
    status: int, last: Report | None
) -> None:
    """A later death is its own: by an exception that has nothing to do with the query, or by a
    signal.
    """
    how = ending(status, {"q": report(errors.SettingRefused)}, last, NOW_S)
    assert (how.meaning, how.is_transient) == (Meaning.RESTART, False)
    assert "SettingRefused" not in how.text
    assert last is None or how.error == "IndexError: list index out of range"


@pytest.mark.parametrize(
    ("status", "last", "of"),
    [
        (1, last_error("StreamingQueryException", "...", "b"), {"b"}),
        (1, UNRELATED, None),
        (1, None, None),
        (-signal.SIGKILL, None, None),
        (-signal.SIGTERM, None, set()),
        (-signal.SIGINT, last_error("KeyboardInterrupt", ""), set()),
    ],
)
def test_whose_failure_it_is(status: int, last: Report | None, of: set[str] | None) -> None:
    """That of the query whose error it is; nobody's where somebody ends the script; else each one's,
    as no process is killed for lack of memory without a cause.
    """
    how = ending(status, {}, last, NOW_S)
    assert how.of == of
    facts = ScriptFacts(standby=False)
    for query_id in "ab":
        started = Story().starts().facts[0].fields
        facts.observed("RunStarted", {**started, "query_id": query_id})
    facts.ended(7, how)
    failed = {name for name, each in facts.stats.queries.items() if each.failed_starts}
    assert failed == (set("ab") if of is None else of)
    assert not any(each.is_running for each in facts.stats.queries.values())
