"""at_least_once and at_most_once on a real Spark."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

import exactum
from exactum import events
from tests.kit.spark.folder_sink import arm

pytestmark = pytest.mark.spark


def test_at_least_once_repeats_what_is_not_logged(query: Any) -> None:
    """Nothing is lost; a batch that Spark has not logged as done is written again. No decisions
    are recorded.
    """
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_least_once(query.sink)) is None
    query.forget_last_commit()
    assert query.run(exactum.at_least_once(query.sink)) is None
    assert query.values() == [1, 2, 2]
    assert not (query.checkpoint / "exactum" / "decisions").exists()


def test_at_least_once_tries_a_failing_task_again(query: Any) -> None:
    """A failed try may have written; the next one writes again, and nothing is lost."""
    arm(query.out, "prepare")
    query.give(1)
    assert query.run(exactum.at_least_once(query.sink)) is None
    assert query.values() == [1, 1]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("since", "scheme"), [(1, ""), (2, ""), pytest.param(1, "viewfs", marks=pytest.mark.in_turn)]
)
def test_what_was_decided_before_at_least_once_is_not_committed_behind_it(
    query: Any, tmp_path: Path, since: int, scheme: str
) -> None:
    """Batch 1 is decided and its driver dies; at_least_once writes it, and perhaps one more. Then
    exactly_once goes on. Wherever the checkpoint lies.
    """
    log = tmp_path / "log" if scheme else None
    if scheme:
        mounted = f"weaker{secrets.token_hex(4)}"  # Hadoop remembers what it has mounted
        configuration = query.spark.sparkContext._jsc.hadoopConfiguration()
        configuration.set(f"fs.viewfs.mounttable.{mounted}.linkFallback", tmp_path.as_uri())
        query.checkpoint = f"viewfs://{mounted}/checkpoint"
    query.give(1)
    assert query.run(query.exactly_once(decision_log=log)) is None
    arm(query.out, "commit", kind="unavailable")
    query.give(2)
    assert query.run(query.exactly_once(decision_log=log)) is not None
    assert (query.values(), query.values("staged")) == ([1], [2])
    for value in range(3, 2 + since):
        query.give(value)
    assert query.run(exactum.at_least_once(query.sink)) is None
    query.give(9)
    assert query.run(query.exactly_once(decision_log=log)) is None
    assert query.values() == [*range(1, 2 + since), 9]
    assert query.values("staged") == []


def test_at_most_once_never_writes_a_begun_batch_again(query: Any) -> None:
    """A batch that was begun is skipped by the next start, and the event says so."""
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_most_once(query.sink)) is None
    query.forget_last_commit()
    query.give(3)
    once = exactum.at_most_once(query.sink, on_event=query.events.append)
    assert query.run(once) is None
    assert query.values() == [1, 2, 3]
    assert [e.batch_id for e in query.seen(events.EpochAbandoned)] == [1]


def test_at_most_once_does_not_write_in_a_second_try(query: Any) -> None:
    """A task that failed after it wrote is tried again by Spark and writes nothing: no row
    stands twice.
    """
    arm(query.out, "prepare")
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_most_once(query.sink)) is None
    assert query.values() == [1, 2]


def test_at_most_once_loses_what_a_failure_interrupts(query: Any) -> None:
    """A first try that fails before it wrote loses its rows, and the query goes on."""
    arm(query.out, "write", kind="exit")
    query.give(1)
    query.give(2)
    assert query.run(exactum.at_most_once(query.sink)) is None
    assert query.values() in ([1, 2], [2])
    assert query.values().count(2) == 1
