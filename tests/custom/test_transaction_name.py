"""Names of transactions: safe as file names, read back exactly, and never taken for another
scope's.
"""

from __future__ import annotations

import random
import re

import pytest

from exactum.custom.transaction_name import LENGTH_MAX, TransactionName, TransactionScope
from exactum.errors import SettingRefused
from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from tests.kit.errors import raised

QUERY = "5f1c9a3e-9f10-4c5e-8d5a-1f1de6c0b7aa"


def name_of(
    query_id: str, participant: str, incarnation: str = "0123456789abcdef"
) -> TransactionName:
    order = WriteOrder(
        QueryRun(query_id, Incarnation(incarnation), Guarantee.EXACTLY_ONCE), 7, 2, 1
    )
    return TransactionScope(query_id, participant).name(order, TaskName(3, 1, 0))


def test_a_name_says_whose_it_is_and_is_read_back() -> None:
    """Query, sink, incarnation, batch, attempt, partition, try, and 16 random digits."""
    name = name_of(QUERY, "my sink#2")
    text = str(name)
    assert re.fullmatch(
        rf"exactum\.{QUERY}\.my_20sink_232\.0123456789abcdef\.7\.2\.3\.1\.[0-9a-f]{{16}}", text
    ), text
    assert TransactionName.parse(text) == name
    assert (name.query_id, name.participant, name.batch_id, name.partition_id) == (
        QUERY,
        "my sink#2",
        7,
        3,
    )


def test_no_two_names_are_the_same() -> None:
    """The same task, asked again, gets another name."""
    assert len({str(name_of(QUERY, "s")) for _ in range(1000)}) == 1000


def test_any_text_makes_safe_names_that_differ() -> None:
    """Whatever sinks and queries are called: letters, digits, dot, underscore and minus;
    different stay different.
    """
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    seen: dict[str, tuple[str, str]] = {}
    for _ in range(5_000):
        parts = tuple(
            "".join(rng.choice("ab._-/#2äß日 \x00F") for _ in range(rng.randint(1, 4)))
            for _ in range(2)
        )
        name = name_of(parts[0], parts[1])
        assert re.fullmatch(r"[A-Za-z0-9._-]+", str(name))
        assert TransactionName.parse(str(name)) == name
        assert seen.setdefault(name.scope.prefix, (parts[0], parts[1])) == parts
        assert str(name).startswith(name.scope.prefix)


def test_a_scope_finds_its_own_and_no_other() -> None:
    """`app` neither finds nor shares a prefix with `app-eu`, `app.eu` or `app` of another query."""
    mine = TransactionScope("q", "app")
    assert mine.find(str(name_of("q", "app"))) is not None
    for query_id, participant in (
        ("q", "app-eu"),
        ("q", "app.eu"),
        ("q", "ap"),
        ("q.app", "x"),
        ("q2", "app"),
    ):
        other = str(name_of(query_id, participant))
        assert mine.find(other) is None
        assert not other.startswith(mine.prefix)


@pytest.mark.parametrize(
    "text",
    ["", "orders.jsonl", "exactum.q.app", "exactum.q.app.i.1.0.0.0.xyz", "exactum._ff.app.i.1.0.0.0.0123456789abcdef",
     "exactum.q.app.i.01.0.0.0.0123456789abcdef", "exactum.q_41.app.i.1.0.0.0.0123456789abcdef"],
)  # fmt: skip
def test_what_is_no_name_of_ours_is_nobodys(text: str) -> None:
    """Other people's files are not taken for transactions, nor is a second spelling of a name."""
    assert TransactionName.parse(text) is None


def test_a_name_that_would_be_too_long_is_refused() -> None:
    """At start; a name that passes fits a file name with room for an ending."""
    longest = "s" * 60
    TransactionScope(QUERY, longest).check()
    assert len(str(name_of(QUERY, longest))) < LENGTH_MAX
    with raised(SettingRefused, "SINK_NAME_LONG", "s" * 80, "name="):
        TransactionScope(QUERY, "s" * 80).check()
