"""Write-ahead targets in a real Spark query. (Without Spark: tests/custom/test_write_ahead.py.)"""

from __future__ import annotations

from typing import Any

import pytest

import exactum
from exactum.errors import SettingRefused
from tests.kit.errors import check_query_error

pytestmark = pytest.mark.spark


class Inbox:
    """A target that keeps what was sent, and dedupes nothing."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.fails = False

    def send(self, batch: Any, key: str) -> None:
        if self.fails:
            raise ConnectionResetError("the target hung up")
        self.received += batch["v"].to_pylist()


def test_sinks_that_only_their_order_would_tell_apart_need_names(query: Any) -> None:
    """What one of them has decided would go to the other one's target, where a start has them in
    another order. With names it goes where it belongs.
    """
    crm, mail = Inbox(), Inbox()
    crm.fails = True

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
    crm.fails = False
    assert query.run(query.exactly_once(*reversed(sinks("crm", "mail")))) is None
    assert (sorted(crm.received), mail.received) == ([1, 2], [11])
