"""What the end of a script means."""

from __future__ import annotations

import signal

import pytest

from exactum import errors
from exactum.errors import Disposition
from exactum.ops.run.ending import Meaning, Report, ending

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ExactumError)]


def report(kind: type[errors.ExactumError]) -> Report:
    return Report(kind.__name__, kind.disposition, "because")


def test_status_0_is_done() -> None:
    """A script that ends well is done, also when a query of it has failed before: it has dealt with that."""
    assert ending(0, []).meaning is Meaning.DONE
    assert ending(0, [report(errors.Fenced)]).meaning is Meaning.DONE


@pytest.mark.parametrize("status", [1, 137, -signal.SIGKILL, -signal.SIGSEGV, -250])
def test_a_death_without_a_word_is_followed_by_a_restart(status: int) -> None:
    """Whatever the status or the signal."""
    assert ending(status, []).meaning is Meaning.RESTART


@pytest.mark.parametrize("kind", ALL)
def test_the_disposition_of_the_error_decides(kind: type[errors.ExactumError]) -> None:
    """Fenced and halting errors are not followed by a restart, all others are; the reason is in the text."""
    halts = kind.disposition in (Disposition.FENCED, Disposition.HALT)
    for status in (1, -signal.SIGKILL):
        how = ending(status, [report(errors.EpochAborted), report(kind)])
        assert how.meaning is (Meaning.HALT if halts else Meaning.RESTART)
        assert f"{kind.__name__}: because" in how.text


def test_a_signal_is_named() -> None:
    """A person reads SIGKILL, not -9."""
    assert "SIGKILL" in ending(-9, []).text
    assert "status 3" in ending(3, []).text
