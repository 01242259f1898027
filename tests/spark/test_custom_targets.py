"""Targets of the user's own in a real Spark query: the example as a stranger runs it, and a
write-ahead target.
"""

from __future__ import annotations

from typing import Any

import pytest

import exactum
from exactum import events
from exactum.errors import SettingRefused
from tests.kit.errors import check_query_error

pytestmark = pytest.mark.spark


class Inbox:
    """A target that keeps what was sent, with its key, and dedupes nothing."""

    def __init__(self) -> None:
        self.received: list[tuple[str, list[Any]]] = []
        self.fails = 0

    def send(self, batch: Any, key: str) -> None:
        if self.fails:
            self.fails -= 1
            raise ConnectionResetError("the target hung up")
        self.received.append((key, batch.to_pylist()))

    def values(self) -> list[int]:
        return sorted(row["v"] for _, rows in self.received for row in rows)


def test_rows_go_to_a_target_without_transactions_after_the_decision(query: Any) -> None:
    """Sends that fail are tried again. A target that stays away stops the query, and gets that epoch's
    rows at the next start, before all others; a run whose epochs stand already sends nothing twice.
    """
    inbox = Inbox()
    inbox.fails = 1_000
    sink = exactum.WriteAheadSink(inbox.send, tries_max=3, backoff_ms=1)
    query.give(1, 2)
    assert "hung up" in (query.run(query.exactly_once(sink)) or "")
    assert inbox.values() == []
    inbox.fails = 2
    query.give(3, batches=2)
    assert query.run(query.exactly_once(sink)) is None
    query.forget_last_commit()
    assert query.run(query.exactly_once(sink)) is None
    assert len(query.seen(events.EpochRedelivered)) == 2
    assert [row["v"] for _, rows in inbox.received for row in rows] == [1, 2, 3, 3]
    keys = [key for key, _ in inbox.received]
    assert len(set(keys)) == len(keys)


def test_sinks_that_only_their_order_would_tell_apart_need_names(query: Any) -> None:
    """What one of them has decided would go to the other one's target, where a start has them in
    another order. With names it goes where it belongs.
    """
    crm, mail = Inbox(), Inbox()
    crm.fails = 1_000

    def sinks(*names: str | None) -> list[Any]:
        settings: dict[str, Any] = {"tries_max": 1, "backoff_ms": 1}
        views = (lambda batch: batch.where("v < 10"), lambda batch: batch.where("v >= 10"))
        return [
            exactum.WriteAheadSink(inbox.send, name=name, rows=rows, **settings)
            for inbox, name, rows in zip((crm, mail), names, views, strict=True)
        ]

    query.give(1, 2, 11)
    refused = query.run(query.exactly_once(*sinks(None, None))) or ""
    check_query_error(refused, SettingRefused, "SINK_NAME_TWICE", "'WriteAheadSink'", "name=")
    assert "hung up" in (query.run(query.exactly_once(*sinks("crm", "mail"))) or "")
    crm.fails = 0
    assert query.run(query.exactly_once(*reversed(sinks("crm", "mail")))) is None
    assert (crm.values(), mail.values()) == ([1, 2], [11])
