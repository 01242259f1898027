"""What a crash test says of an output: each wrong row in one kind."""

from __future__ import annotations

import pickle

from exactum.testing import (
    CrashVerdict,
    OutputDifference,
    OutputNotExact,
    OutputRecord,
    latest_by_key,
)

EXPECTED = [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("c", 1)]


def difference(*found: object) -> OutputDifference:
    return OutputDifference.of(EXPECTED, found)  # type: ignore[arg-type]


def test_the_same_rows_in_any_order_are_the_same() -> None:
    assert not OutputDifference.of(EXPECTED, reversed(EXPECTED))


def test_each_wrong_row_is_of_one_kind() -> None:
    found = difference(("a", 1), ("a", 1), ("a", 1), ("b", 7), ("c", 1), ("d", 1))
    assert found.lost == (("a", 2), ("c", 1))
    assert found.doubled == ((("a", 1), 1, 3),)
    assert found.altered == ((("b", 1), ("b", 7)),)
    assert found.unexpected == (("d", 1),)
    assert str(found) == "2 lost, 2 doubled, 1 altered, 1 unexpected"


def test_a_row_twice_expected_and_three_times_there_is_doubled_once() -> None:
    found = difference(*EXPECTED, ("c", 1))
    assert (found.doubled, found.doubles) == (((("c", 1), 2, 3),), 1)
    assert not (found.lost or found.altered or found.unexpected)


def test_a_doubled_row_never_stands_for_one_that_is_lost() -> None:
    """Same key, but the other row is expected itself: that is one lost and one doubled."""
    found = OutputDifference.of([("a", 1), ("a", 2)], [("a", 1), ("a", 1)])
    assert (found.lost, found.doubled, found.altered) == ((("a", 2),), ((("a", 1), 1, 2),), ())


def test_rows_that_are_no_tuples_are_compared_whole() -> None:
    found = OutputDifference.of(["x", None], ["y", None])
    assert (found.lost, found.unexpected) == (("x",), ("y",))


def test_the_latest_of_each_key() -> None:
    rows = [OutputRecord("a", "1"), OutputRecord("b", "1"), OutputRecord("a", "2")]
    assert sorted(latest_by_key(rows)) == [("a", "2"), ("b", "1")]  # type: ignore[type-var]


def verdict(found: OutputDifference, hidden: int = 0) -> CrashVerdict:
    return CrashVerdict(
        job="job.py",
        seed=7,
        kills=("here", "there"),
        expected=5,
        found=9,
        difference=found,
        hidden=hidden,
        log="/tmp/job.log",
    )


def test_a_verdict_tells_a_few_examples_of_each_kind_and_how_to_replay() -> None:
    text = str(verdict(OutputDifference.of([(n, "x" * 500) for n in range(9)], [(99, b"\xff")])))
    assert text.startswith("job.py is NOT exact after 2 SIGKILLs: 9 lost")
    assert "... and 4 more" in text
    assert "(99, b'\\xff')" in text
    assert "EXACTUM_CRASH_SEED=7" in text
    assert max(map(len, text.splitlines())) < 200


def test_what_open_transactions_hide_is_not_exact() -> None:
    assert verdict(difference(*EXPECTED)).exact
    hidden = verdict(difference(*EXPECTED), hidden=3)
    assert not hidden.exact
    assert "3 offsets of the output are hidden by open transactions" in str(hidden)


def test_the_error_carries_the_verdict_between_processes() -> None:
    error = OutputNotExact(verdict(difference()))
    again = pickle.loads(pickle.dumps(error))
    assert (again.verdict, str(again)) == (error.verdict, str(error))
