"""What the end of a script means."""

from __future__ import annotations

import signal

import pytest

from exactum import errors
from exactum.ops.run.ending import HALTING, RELATED_S, LastError, Meaning, Report, ending

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ExactumError)
]
NOW_S = 1000.0
UNRELATED = LastError("IndexError", "list index out of range")


def report(kind: type[errors.ExactumError], ago_s: float = 1.0) -> Report:
    return Report(kind.__name__, kind.disposition, "because", NOW_S - ago_s)


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


@pytest.mark.parametrize("status", [1, 137, -signal.SIGKILL, -signal.SIGSEGV, -250])
def test_a_death_without_a_word_is_followed_by_a_restart(status: int) -> None:
    """Whatever the status or the signal."""
    how = ending(status, {}, None, NOW_S)
    assert how.meaning is Meaning.RESTART


@pytest.mark.parametrize("kind", ALL)
def test_the_disposition_of_the_error_decides(kind: type[errors.ExactumError]) -> None:
    """Fenced and halting errors are not followed by a restart, all others are; the reason is in the
    text. Of whichever query the error is, and whether the script ends with it, with another one
    that carries it, or by sys.exit().
    """
    halts = kind.disposition in HALTING
    reports = {"a": report(errors.EpochAborted), "b": report(kind)}
    own = LastError(kind.__name__, "because", kind.disposition)
    carrying = LastError("StreamingQueryException", "...", queries=frozenset("b"))
    for given, last in ((reports, None), ({}, own), (reports, carrying)):
        how = ending(1, given, last, NOW_S)
        assert how.meaning is (Meaning.HALT if halts else Meaning.RESTART)
        assert how.is_transient is not halts
        assert f"{kind.__name__}: because" in how.text


@pytest.mark.parametrize(("status", "last"), [(1, UNRELATED), (-signal.SIGKILL, None)])
def test_an_error_that_the_script_has_dealt_with_is_not_what_it_dies_of(
    status: int, last: LastError | None
) -> None:
    """A later death is its own: by an exception that has nothing to do with the query, or by a
    signal.
    """
    how = ending(status, {"q": report(errors.SettingRefused)}, last, NOW_S)
    assert (how.meaning, how.is_transient) == (Meaning.RESTART, False)
    assert "SettingRefused" not in how.text
    assert last is None or how.error == "IndexError: list index out of range"


def test_an_exit_long_after_an_error_is_another_matter() -> None:
    """A script that goes on for long has dealt with the error, whatever status it exits with
    later.
    """
    reports = {"q": report(errors.SettingRefused, RELATED_S + 1)}
    assert ending(1, reports, None, NOW_S).meaning is Meaning.RESTART


def test_a_carried_error_counts_however_late_it_comes() -> None:
    """Who cleans up for minutes and then raises the query's error ends with that."""
    reports = {"q": report(errors.SettingRefused, 600)}
    how = ending(1, reports, LastError("RuntimeError", "because", queries=frozenset("q")), NOW_S)
    assert how.meaning is Meaning.HALT


@pytest.mark.parametrize(("status", "last"), [(1, UNRELATED), (1, None), (-signal.SIGKILL, None)])
def test_who_was_fenced_just_now_does_not_take_the_query_back(
    status: int, last: LastError | None
) -> None:
    """However the script ends then."""
    assert ending(status, {"q": report(errors.Fenced)}, last, NOW_S).meaning is Meaning.HALT


def test_a_signal_is_named() -> None:
    """A person reads SIGKILL, not -9."""
    assert "SIGKILL" in ending(-9, {}, None, NOW_S).text
    assert "status 3" in ending(3, {}, None, NOW_S).text
