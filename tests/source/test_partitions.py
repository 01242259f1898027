"""A partition that a query has gone on without is never read from its beginning once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark]

LOSSES = {"failOnDataLoss": False}


def planned_is_removed(stream: Any, batch_id: int) -> None:
    """As the message says."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (stream.checkpoint / "offsets" / name).unlink(missing_ok=True)


@pytest.mark.in_turn
@pytest.mark.parametrize("again", ["partitions", "topic"])
def test_left_out_and_taken_back(
    stream: Any,
    make_stream: Callable[[], Any],
    topics: Any,
    topic: Callable[..., str],
    again: str,
) -> None:
    """Refused, with where it was; a query of its own goes on there."""
    name = topic("taken_back", partitions=3)
    topics.give(name, 3)
    assert stream.run(stream.read({name: [0, 1]})) is None
    topics.give(name, 2)
    assert stream.run(stream.read({name: [0]}, **LOSSES)) is None
    topics.give(name, 1)
    before = stream.rows()
    back = {name: [0, 1]} if again == "partitions" else name
    for options in ({}, LOSSES):
        error = stream.run(stream.read(back, **options)) or ""
        assert "CheckpointRefused" in error
        assert f"it has read {name}-1 up to 3, then went on without" in error
        assert f"read_kafka(spark, {{'{name}': [1]}}, start={{'{name}': {{1: 3}}}})" in error
    assert stream.rows() == before
    planned_is_removed(stream, 2)
    assert stream.run(stream.read({name: [0, 2]}, **LOSSES)) is None, "others may come"
    other = make_stream()
    assert other.run(other.read({name: [1]}, start={name: {1: 3}})) is None
    rows = sorted([*stream.rows(), *other.rows()])
    assert rows == [(name, partition, offset) for partition in (0, 1) for offset in range(6)]


def test_left_out_by_an_attempt_that_is_void(
    stream: Any, topics: Any, topic: Callable[..., str]
) -> None:
    """The batch without the partition is removed, and never was: the partition is read on. Left out
    again, it is remembered as far as it was read by then.
    """
    name = topic("void_partition", partitions=2)
    topics.give(name, 3)
    assert stream.run(stream.read({name: [0, 1]})) is None
    topics.give(name, 1)
    broken = stream.read({name: [0]}, **LOSSES).selectExpr(
        "topic", "partition", "CAST(raise_error('broken today') AS LONG) AS offset"
    )
    assert "broken today" in (stream.run(broken) or "")
    planned_is_removed(stream, 1)
    assert stream.run(stream.read({name: [0, 1]}, **LOSSES)) is None
    assert stream.rows() == [
        (name, partition, offset) for partition in (0, 1) for offset in range(4)
    ]
    topics.give(name, 1)
    assert stream.run(stream.read({name: [0]}, **LOSSES)) is None
    topics.give(name, 1)
    error = stream.run(stream.read({name: [0, 1]}, **LOSSES)) or ""
    assert f"it has read {name}-1 up to 4, then went on without" in error
