"""The demo's counting: it has to see every fault that a sink can make."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from exactum.ops.demo.order import CUSTOMERS, key_of, value_of
from exactum.ops.demo.tally import Tally
from exactum.ops.demo.verdict import DemoVerdict


def tally_of(numbers: Iterable[int], partition: int = 0) -> Tally:
    """What a reader counts that sees these orders, shouted, in this order."""
    tally = Tally()
    for number in numbers:
        tally.add(partition, key_of(number), value_of(number).upper())
    return tally


def verdict_of(
    tally: Tally, produced: int, live: Tally | None = None, hidden: int = 0
) -> DemoVerdict:
    return DemoVerdict.of(
        "exactum",
        kills=3,
        produced=produced,
        fresh=tally,
        live=tally if live is None else live,
        hidden=hidden,
    )


def test_everything_once_and_in_order_is_exact() -> None:
    """What is right is called right, with the numbers."""
    verdict = verdict_of(tally_of(range(1_000)), 1_000)
    assert verdict.exact
    text = str(verdict)
    assert text.startswith(
        "VERDICT exactum: exact after 3 SIGKILLs (produced 1,000, committed 1,000, 0 duplicates"
    )
    assert "0 missing" in text
    assert "order kept in each key" in text


def test_a_duplicate_is_counted() -> None:
    """Each repetition counts; a late repetition is a duplicate and not a broken order."""
    tally = tally_of([0, 1, 2, 1, 1, 100, 0])
    assert (tally.committed, tally.duplicates, tally.disordered) == (7, 3, 0)
    assert not verdict_of(tally_of([0, 1, 2, 1]), 3).exact


def test_a_missing_order_is_counted() -> None:
    """A hole counts, even where a duplicate makes the sum right."""
    tally = tally_of([0, 1, 3, 3])
    assert tally.missing(4) == 1
    assert tally.distinct == 3
    assert not verdict_of(tally, 4).exact


def test_order_is_that_of_a_key() -> None:
    """Orders of different customers may overtake each other, those of one may not."""
    assert tally_of([1, 0, CUSTOMERS + 1, CUSTOMERS]).disordered == 0
    broken = tally_of([CUSTOMERS, 0, 2 * CUSTOMERS])
    assert broken.disordered == 1
    everything = tally_of([*range(CUSTOMERS, 2 * CUSTOMERS), *range(CUSTOMERS)])
    assert everything.missing(2 * CUSTOMERS) == 0
    assert not verdict_of(everything, 2 * CUSTOMERS).exact


def test_a_key_stays_in_its_partition() -> None:
    """A key that moves to another partition has lost its order for a reader of partitions."""
    tally = tally_of([0], partition=0)
    tally.add(1, key_of(CUSTOMERS), value_of(CUSTOMERS).upper())
    assert tally.disordered == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"07", b"order 7 of customer 07"),  # not shouted
        (b"08", b"ORDER 7 OF CUSTOMER 07"),  # another key
        (None, b"ORDER 7 OF CUSTOMER 07"),
        (b"07", b"ORDER 7 OF CUSTOMER 08"),
        (b"07", b"ORDER 7 OF CUSTOMER 07 "),
        (b"07", b"ORDER 007 OF CUSTOMER 07"),
        (b"07", None),
    ],
)
def test_a_damaged_record_is_no_order(key: bytes | None, value: bytes | None) -> None:
    """Key and value are compared whole; what differs is damaged, and the order is missing."""
    tally = Tally()
    tally.add(0, key, value)
    assert (tally.damaged, tally.distinct) == (1, 0)


def test_an_order_that_nobody_produced_is_not_exact() -> None:
    """More than was produced is as wrong as less."""
    verdict = verdict_of(tally_of(range(11)), 10)
    assert verdict.unexpected == 1
    assert not verdict.exact
    assert "1 records that nobody produced" in str(verdict)


def test_open_transactions_at_rest_are_not_exact() -> None:
    """At rest the last stable offset is the high watermark."""
    verdict = verdict_of(tally_of(range(10)), 10, hidden=4)
    assert not verdict.exact
    assert "4 offsets hidden by open transactions" in str(verdict)


def test_the_reader_that_ran_along_must_have_seen_the_same() -> None:
    """A duplicate that only a reader of the time saw is a duplicate all the same."""
    verdict = verdict_of(tally_of(range(10)), 10, live=tally_of([*range(10), 4]))
    assert not verdict.exact
    assert "a reader that ran all along saw something else" in str(verdict)


def test_nothing_at_all_is_not_exact() -> None:
    """A demo that produced nothing has shown nothing."""
    assert not verdict_of(Tally(), 0).exact


def test_a_run_without_duplicates_says_so() -> None:
    """Of the sink beside exactum: it is there to show some."""
    assert "doubled nothing this time" in verdict_of(tally_of(range(10)), 10).remark
    assert verdict_of(tally_of([*range(10), 4]), 10).remark == ""
