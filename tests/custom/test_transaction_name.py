"""Names of transactions: safe as file names, read back exactly, and never taken for another
scope's.
"""

from __future__ import annotations

import re

import pytest

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from tests.kit.opened_sink import QUERY

MINE = TransactionScope(QUERY, "my sink/ä\0#2")


def name_of(scope: TransactionScope) -> TransactionName:
    run = QueryRun(scope.query_id, Incarnation("0123456789abcdef"), Guarantee.EXACTLY_ONCE)
    return scope.name(WriteOrder(run, 2**62, 2, 1), TaskName(3, 1, 0))


def test_a_name_says_whose_it_is_and_is_read_back() -> None:
    """Incarnation, batch, attempt, partition, try, and 16 random digits, whatever sinks are called;
    no longer than a file's name may be, with room for an ending.
    """
    name = name_of(MINE)
    text = str(name)
    assert re.fullmatch(
        rf"exactum\.[0-9a-f]{{32}}\.0123456789abcdef\.{2**62}\.2\.3\.1\.[0-9a-f]{{16}}", text
    ), text
    assert MINE.find(text) == name and len(text) < 150
    assert len({str(name_of(MINE)) for _ in range(1000)}) == 1000


def test_a_scope_finds_its_own_and_no_other() -> None:
    """Nor does it share a prefix with one that is called alike, or of another query."""
    others = [(QUERY, "my sink"), (QUERY, "my sink/ä\0#22"), ("q", MINE.participant), (QUERY, "")]
    for other in (TransactionScope(*each) for each in others):
        assert MINE.find(str(name_of(other))) is None
        assert not other.prefix.startswith(MINE.prefix) and other.prefix != MINE.prefix


@pytest.mark.parametrize("rest", ["", "i", "i.1.0.0.0.xyz", "i.01.0.0.0." + "0" * 16])
def test_what_is_no_name_of_ours_is_nobodys(rest: str) -> None:
    """Other people's files are not taken for transactions, nor is a second spelling of a name."""
    assert MINE.find(f"{MINE.prefix}{rest}") is None
    assert MINE.find("orders.jsonl") is None
