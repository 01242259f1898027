"""The demo's verdict: it has to see every fault that a sink can make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from exactum.ops.crash_test.demo_orders import CUSTOMERS, DemoVerdict, RowsSeen, shouted
from exactum.testing.crash_verdict import OutputRecord


def verdict_of(
    numbers: Iterable[int],
    produced: int,
    *,
    other: Sequence[OutputRecord] = (),
    elsewhere: Iterable[int] = (),
    only_live: Iterable[int] = (),
    hidden: int = 0,
) -> DemoVerdict:
    """A reader sees these orders, shouted, in this order, and ``other`` records; ``elsewhere`` are
    in another partition.
    """
    fresh: Mapping[int, Sequence[OutputRecord]] = {
        0: [*map(shouted, numbers), *other],
        1: [*map(shouted, elsewhere)],
    }
    live = RowsSeen()
    for record in (*fresh[0], *fresh[1], *map(shouted, only_live)):
        live.add(record)
    return DemoVerdict.of(
        "exactum", kills=3, produced=produced, fresh=fresh, live=live, hidden=hidden
    )


def test_everything_once_and_in_order_is_exact() -> None:
    """What is right is called right, with the numbers."""
    verdict = verdict_of(range(1_000), 1_000)
    assert verdict.exact
    text = str(verdict)
    assert text.startswith(
        "VERDICT exactum: exact after 3 SIGKILLs (produced 1,000, committed 1,000, 0 duplicates"
    )
    assert "0 missing" in text
    assert "order kept in each key" in text


def test_a_duplicate_is_counted() -> None:
    """Each repetition counts; a late repetition is a duplicate and not a broken order."""
    verdict = verdict_of([*range(101), 1, 1, 0], 101)
    assert (verdict.committed, verdict.difference.doubles, verdict.disordered) == (104, 3, 0)
    assert not verdict.exact


def test_a_missing_order_is_counted() -> None:
    """A hole counts, even where a duplicate makes the sum right."""
    verdict = verdict_of([0, 1, 3, 3], 4)
    assert len(verdict.difference.lost) == 1
    assert not verdict.exact


def test_order_is_that_of_a_key() -> None:
    """Orders of different customers may overtake each other, those of one may not."""
    two = 2 * CUSTOMERS
    assert verdict_of([1, 0, *range(2, two)], two).exact
    broken = verdict_of([CUSTOMERS, *range(CUSTOMERS), *range(CUSTOMERS + 1, two)], two)
    assert (broken.disordered, bool(broken.difference), broken.exact) == (1, False, False)
    assert "order broken 1 times" in str(broken)


def test_a_key_stays_in_its_partition() -> None:
    """A key that moves to another partition has lost its order for a reader of partitions."""
    moved = verdict_of(range(CUSTOMERS), CUSTOMERS + 1, elsewhere=[CUSTOMERS])
    assert (moved.disordered, moved.exact) == (1, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("07", "order 7 of customer 07"),  # not shouted
        ("08", "ORDER 7 OF CUSTOMER 07"),  # another key
        (None, "ORDER 7 OF CUSTOMER 07"),
        ("07", "ORDER 7 OF CUSTOMER 08"),
        ("07", "ORDER 7 OF CUSTOMER 07 "),
        ("07", "ORDER 007 OF CUSTOMER 07"),
        ("07", b"\xff"),
        ("07", None),
    ],
)
def test_a_damaged_record_is_no_order(key: str | None, value: str | bytes | None) -> None:
    """Key and value are compared whole; what differs is unexpected, and the order is missing."""
    verdict = verdict_of(range(7), 8, other=[OutputRecord(key, value)])
    assert not verdict.exact
    assert "1 missing" in str(verdict) and "1 records that nobody produced" in str(verdict)


def test_an_order_that_nobody_produced_is_not_exact() -> None:
    """More than was produced is as wrong as less."""
    verdict = verdict_of(range(11), 10)
    assert not verdict.exact
    assert "1 records that nobody produced" in str(verdict)


def test_open_transactions_at_rest_are_not_exact() -> None:
    """At rest the last stable offset is the high watermark."""
    verdict = verdict_of(range(10), 10, hidden=4)
    assert not verdict.exact
    assert "4 offsets hidden by open transactions" in str(verdict)


def test_the_reader_that_ran_along_must_have_seen_the_same() -> None:
    """A duplicate that only a reader of the time saw is a duplicate all the same."""
    verdict = verdict_of(range(10), 10, only_live=[4])
    assert not verdict.exact
    assert "a reader that ran all along saw something else" in str(verdict)


def test_nothing_at_all_is_not_exact() -> None:
    """A demo that produced nothing has shown nothing."""
    assert not verdict_of([], 0).exact


def test_a_run_without_duplicates_says_so() -> None:
    """Of the sink beside exactum: it is there to show some."""
    assert "doubled nothing this time" in verdict_of(range(10), 10).remark
    assert verdict_of([*range(10), 4], 10).remark == ""
