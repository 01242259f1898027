"""A query that Spark ends between two micro-batches, when nobody calls exactum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exactum.events import RunEnded
from tests.kit.waiting import await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.parametrize("fails", [True, False])
def test_why_it_ended_is_told(
    stream: Any, topics: Any, topic: Callable[..., str], fails: bool
) -> None:
    """It passed for one that was stopped; with a stop of its own, for one that has read all."""
    name = topic("between", partitions=1)
    topics.give(name, 3, partitions=1)
    query = stream.start(stream.read(name), processingTime="0 seconds")
    await_true(lambda: len(stream.rows()) == 3, "what is there is read")
    await_true((stream.checkpoint / "commits/0").exists, "the micro-batch is over")
    if fails:
        topics.kafka.delete_topic(name)
        assert stream.end(query) is not None
    else:
        query.stop()
    ends = lambda: [e for e in stream.events if isinstance(e, RunEnded)]  # noqa: E731
    await_true(lambda: bool(ends()), "the end is told")
    (end,) = ends()
    assert bool(end.error) == bool(end.reason) == fails
