"""Spark's keyed state and exactum's output agree, whatever happens between them. The oracle
folds the input by hand.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.events import EpochCompleted, EpochRedelivered
from tests.kit.spark.torn_stream import of_format_2
from tests.kit.state import folds
from tests.kit.state.keyed import MS_APART, TIMEOUT_S, Keyed

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RESCALED = 5


def folded(epochs: list[list[tuple[str, int]]]) -> dict[str, list[str]]:
    """What ``Fold`` must say of these epochs, timers aside."""
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    said: dict[str, list[str]] = defaultdict(list)
    for epoch in epochs:
        for key, number in epoch:
            count[key] += 1
            total[key] += number
        for key in {key for key, _ in epoch}:
            said[key].append(f"{count[key]}:{total[key]} {count[key]}:{total[key]} {total[key]}")
    return said


@pytest.mark.deep
def test_value_list_and_map_state_timers_a_crash_and_another_scale(
    keyed: Keyed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the decision and before Spark's commit log: the epoch's writes are not
    repeated, and its state is there. A savepoint, moved, in another number of partitions: the query
    goes on in the same topic. In the end each key's output is the fold of its input, epoch by
    epoch, and each timer went off once.
    """
    monkeypatch.setattr("exactum.checkpoint.savepoint.restore.ENDING_S", TIMEOUT_S)
    keyed.source.produce(keyed.bootstrap_servers, 80)
    keyed.live(folds.Fold(), "EventTime", die=lambda batch: batch == 1)
    events = keyed.live(folds.Fold(), "EventTime")
    assert [e.batch_id for e in events if isinstance(e, EpochRedelivered)] == [1]
    assert 1 not in [e.batch_id for e in events if isinstance(e, EpochCompleted)]
    assert {s for said in keyed.written().values() for s in said if s.startswith("timer")} == set()

    made = create(str(keyed.checkpoint), tmp_path / "savepoint")
    moved = dataclasses.replace(keyed, checkpoint=tmp_path / "moved")
    restore(tmp_path / "savepoint", str(moved.checkpoint), Identity.SAME)
    manager = of_format_2(keyed.spark)._streamingCheckpointManager
    manager.repartition(str(moved.checkpoint), RESCALED, enforce_exactly_once_sink=True)
    assert moved.last() == made.batch_id + 1, "Spark marks an epoch that no sink ever sees"
    keyed.source.produce(keyed.bootstrap_servers, 80)
    moved.live(folds.Fold(), "EventTime", die=lambda batch: batch == made.batch_id + 2)
    moved.live(folds.Fold(), "EventTime")

    said = folded(keyed.between(0) + moved.between(made.batch_id + 1))
    timers = {f"k{n}": f"timer {(n + 1) * MS_APART + folds.TIMER_MS}" for n in range(10)}
    written = moved.written()
    assert {
        key: [s for s in values if not s.startswith("timer")] for key, values in written.items()
    } == said
    assert {
        key: [s for s in values if s.startswith("timer")] for key, values in written.items()
    } == {key: [timer] for key, timer in timers.items()}
    state = moved.state("sum").collect()
    assert len({row.partition_id for row in state}) > 2, (
        "the state is in more partitions than it was"
    )
    values = {row.key.key: (row.value["count"], row.value["total"]) for row in state}
    assert values == {
        key: (len(v), sum(int(n[1:]) for n in v)) for key, v in keyed.source.values.items()
    }, "and it is the fold of all input, as Spark's own reader sees it"


@pytest.mark.deep
def test_state_that_expires(keyed: Keyed) -> None:
    """Time to live and timers in processing time: an epoch that is run again after a crash has the
    same time as the first time, so what its output said is what its state is.
    """
    for count, dies in ((20, False), (30, True), (0, False), (10, False)):
        if count:
            keyed.source.produce(keyed.bootstrap_servers, count)
        keyed.live(folds.Forgetful(), "ProcessingTime", keyed.reads_all if dies else None)
    expected = {f"k{n}": ["short 2 long 2", "short 3 long 5", "short 1 long 6"] for n in range(10)}
    written = keyed.written()
    assert {key: [s for s in values if s != "timer"] for key, values in written.items()} == expected
    assert {key: values.count("timer") for key, values in written.items()} == dict.fromkeys(
        expected, 3
    )
