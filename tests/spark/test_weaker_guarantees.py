"""at_least_once and at_most_once on a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import exactum
from exactum import events
from exactum.errors import CheckpointRefused
from tests.kit.spark.files import mounted
from tests.kit.spark.folder_sink import arm, disarm

pytestmark = pytest.mark.spark


def test_at_least_once_repeats_what_is_not_logged(query: Any) -> None:
    """Nothing is lost: a try that failed may have written, and so may a batch that Spark has not
    logged as done; either is written again.
    """
    arm(query.out, "prepare")
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_least_once(query.sink)) is None
    assert query.values() == [1, 1, 2]
    query.forget_last_commit()
    assert query.run(exactum.at_least_once(query.sink)) is None
    assert query.values() == [1, 1, 2, 2]


@pytest.mark.variants(2)
@pytest.mark.parametrize("make", [exactum.at_least_once, exactum.at_most_once])
@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_what_exactly_once_left_open_is_settled_first(query: Any, make: Any, step: str) -> None:
    """Batch 1 was decided, or not, and its driver died. It goes on under another guarantee, dies
    likewise, and comes back.
    """
    for value in (1, 2):
        query.give(value)
        if value == 2:
            arm(query.out, step, kind="unavailable", times=4)
        assert (query.run(query.exactly_once()) is None) == (value == 1)
    disarm(query.out)
    query.give(3)
    assert query.run(make(query.sink, on_event=query.events.append)) is None
    assert (query.values(), query.values("staged")) == ([1, 2, 3], [])
    redelivered = [e.batch_id for e in query.seen(events.EpochRedelivered)]
    assert redelivered == [1] * (step == "commit")
    query.give(4)
    assert query.run(query.exactly_once()) is None
    assert (query.values(), query.values("staged")) == ([1, 2, 3, 4], [])


def test_at_least_once_where_the_checkpoint_holds_no_log(query: Any, tmp_path: Path) -> None:
    """It needs none; but it goes on behind exactly_once by the log that this had."""
    query.checkpoint = f"{mounted(query.spark, tmp_path)}/checkpoint"
    query.give(1)
    assert query.run(exactum.at_least_once(query.sink)) is None
    arm(query.out, "commit", kind="unavailable")
    query.give(2)
    log = tmp_path / "log"
    assert query.run(query.exactly_once(decision_log=log)) is not None
    refused = exactum.at_least_once(query.sink)
    assert query.run(refused) is not None
    assert isinstance(query.error, CheckpointRefused)
    assert (query.values(), query.values("staged")) == ([1], [2])
    assert query.run(exactum.at_least_once(query.sink, decision_log=log)) is None
    assert (query.values(), query.values("staged")) == ([1, 2], [])


def test_at_most_once_never_writes_a_begun_batch_again(query: Any) -> None:
    """A batch that was begun is skipped by the next start, and the event says so. A task that failed
    after it wrote is tried again by Spark and writes nothing.
    """
    arm(query.out, "prepare")
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_most_once(query.sink)) is None
    assert query.values() == [1, 2]
    query.forget_last_commit()
    query.give(3)
    once = exactum.at_most_once(query.sink, on_event=query.events.append)
    assert query.run(once) is None
    assert query.values() == [1, 2, 3]
    assert [e.batch_id for e in query.seen(events.EpochAbandoned)] == [1]


def test_at_most_once_loses_what_a_failure_interrupts(query: Any) -> None:
    """A first try that fails before it wrote loses its rows, and the query goes on."""
    arm(query.out, "write", kind="exit")
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_most_once(query.sink)) is None
    assert query.values() in ([1, 2], [2])
    assert query.values().count(2) == 1
