"""Of decision log and target one is older than the other, or gone. What a target has lost is
published again where its files are kept; else the start refuses, with both numbers, and a run that
lives refuses before it writes on. (An older checkpoint: ``SinkContract``, and tests/protocol.)
"""

from __future__ import annotations

import pytest

from exactum.errors import CheckpointRefused, HeuristicOutcome
from exactum.protocol.sink import TaskName
from exactum.sinks.staged import BATCHES_KEPT
from exactum.testing import MemoryStorage
from tests.contract.targets import LAKE, MARKED, NAME, TABLES, UPSERTS, Target, over
from tests.kit.errors import raised
from tests.kit.sql.sql_epochs import Incarnation, Query, expected, tasks_of


def refuses(run: Incarnation | Query, batch_id: int, *facts: object) -> None:
    with raised(CheckpointRefused, "ENDS_DIFFER", f"'{NAME}'", *facts):
        run.run(batch_id)


def shows(target: Target, *batches: int) -> None:
    assert sorted(target.rows()) == expected(batches)


def accept(target: Target, query: Query) -> None:
    """A person says that it is right as it is."""
    with target.opened(query) as driver:
        driver.participant.forget_batches()


@pytest.mark.parametrize("target", over(*MARKED, *UPSERTS), indirect=True)
def test_a_target_that_is_older(target: Target) -> None:
    """Refused as often as it is tried, until a person accepts what is missing."""
    query = target.query()
    query.run(0, 1)
    put_back = target.copied()
    query.run(*range(2, 2 + BATCHES_KEPT))
    put_back()
    if target.keeps:
        query.run(6)
        shows(target, *range(7))
        return
    for _ in range(2):
        refuses(query, 6, "batch 1", "batch 5")
    shows(target, 0, 1)
    accept(target, query)
    query.run(6, 7)
    shows(target, 0, 1, 6, 7)


@pytest.mark.parametrize("target", over(*TABLES), indirect=True)
def test_a_table_that_lacks_more_than_is_kept(target: Target) -> None:
    query = target.query()
    query.run(0, 1)
    put_back = target.copied()
    query.run(*range(2, 12))
    kept = {int(path.name.split("-")[0]) for path in query.staging.glob("*/*.staged")}
    assert kept == set(range(12 - BATCHES_KEPT, 12))
    put_back()
    for _ in range(2):
        refuses(query, 12, "batch 1", "batch 11")
    shows(target, 0, 1)
    assert query.staged() == []


@pytest.mark.parametrize("target", over(*TABLES), indirect=True)
def test_a_kept_file_that_is_gone(target: Target) -> None:
    """Nothing is published past the gap, also not what is decided. Put back, all of it is."""
    query = target.query()
    query.run(0)
    put_back = target.copied()
    query.die_before_commit(1, 2)
    put_back()
    (kept, *_) = query.staging.glob("*/0000000001-*.staged")
    away = kept.rename(kept.with_suffix(".away"))
    refuses(query, 2, "batch 0")
    shows(target, 0)
    away.rename(kept)
    query.run(2)
    shows(target, 0, 1, 2)


@pytest.mark.parametrize("target", over(*MARKED), indirect=True)
def test_under_a_run(target: Target) -> None:
    """It fails over, say. That a part of a speculative task waits, or of a batch long ago, is no
    reason to go on. A successor makes whole what is kept.
    """
    query = target.query()
    driver = query.start()
    driver.run(0)
    driver.run(1)
    put_back = target.copied()
    driver.run(2)
    put_back()
    refuses(driver, 3, "batch 1", "batch 2")
    task = [target.frame(batch) for batch in tasks_of(2)[0]]
    driver.task(driver.order(2), TaskName(0, 1, 0), task)
    refuses(driver, 3, "batch 1", "batch 2")
    driver.close()
    shows(target, 0, 1)
    assert query.staged() == []
    if target.keeps:
        query.run(3)
        shows(target, 0, 1, 2, 3)


@pytest.mark.parametrize("target", over(*MARKED), indirect=True)
def test_under_a_run_that_has_only_redelivered(target: Target) -> None:
    """A batch of its predecessor, which the target loses before the run decides one of its own."""
    query = target.query()
    query.run(0)
    put_back = target.copied()
    query.die_before_commit(1)
    driver = query.start()
    driver.run(1)
    shows(target, 0, 1)
    put_back()
    refuses(driver, 2, "batch 0", "batch 1")
    driver.close()
    shows(target, 0)
    assert query.staged() == []


@pytest.mark.parametrize("target", over(*MARKED), indirect=True)
def test_marks_that_were_removed_are_none_that_went_back(target: Target) -> None:
    """To write batches again on purpose, by docs/guarantees.md."""
    query = target.query()
    query.run(0, 1)
    accept(target, query)
    query.run(2)
    shows(target, 0, 1, 2)


@pytest.mark.parametrize("redelivered", [False, True])
@pytest.mark.parametrize("target", over(*TABLES), indirect=True)
def test_a_run_of_which_the_table_knows_nothing(target: Target, *, redelivered: bool) -> None:
    """A new query's first batches are lost in a failover. The next start takes it for emptied on
    purpose.
    """
    query = target.query()
    if redelivered:
        query.die_before_commit(0)
    driver = query.start()
    driver.run(0)
    target.made_anew()
    refuses(driver, 1, "has no batch of it", "batch 0")
    driver.close()
    shows(target)
    assert query.staged() == []
    query.run(1)
    shows(target, 1)


@pytest.mark.parametrize("target", over("folder", *LAKE), indirect=True)
def test_a_place_that_was_made_anew(target: Target) -> None:
    """It looks like a mount that is missing."""
    query = target.query()
    query.run(0)
    target.made_anew()
    for _ in range(2):
        refuses(query, 1, "has no batch of it", "batch 0")
    shows(target)


@pytest.mark.parametrize("target", over(*MARKED), indirect=True)
def test_a_log_that_is_gone(target: Target) -> None:
    """A query that begins again at batch 0: its rows stand already."""
    query = target.query()
    query.run(0)
    query.storage = MemoryStorage()
    refuses(query, 0, "batch 0")
    shows(target, 0)
    assert query.staged() == []


@pytest.mark.parametrize("target", over(*TABLES, *LAKE), indirect=True)
def test_a_batch_that_the_target_has(target: Target) -> None:
    """From other files, or a later one: nothing is decided."""
    query = target.query()
    with target.opened(query) as driver:
        driver.write(*frames(target, 3), batch_id=3)
    with target.opened(query) as driver:
        for batch_id in (2, 3):
            prepared = driver.prepare(*frames(target, batch_id), batch_id=batch_id)
            with raised(CheckpointRefused, "TARGET_AHEAD", batch_id):
                driver.participant.verify(prepared)
        driver.sweep()
        assert driver.participant.last_batch() == 3
        driver.participant.forget_batches()
        assert driver.participant.last_batch() is None
        driver.write(*frames(target, 2), batch_id=2)
    shows(target, 2, 3)


@pytest.mark.parametrize("target", over(*TABLES, *LAKE), indirect=True)
def test_two_logs_that_decided_the_same_batch(target: Target) -> None:
    """Two queries of one id, say: what the target has is not taken for one's own."""
    query = target.query()
    with target.opened(query) as one:
        permit = one.decide(*frames(target, 0))
    with target.opened(query) as two:
        two.write(*frames(target, 1))
    with target.opened(query) as late, raised(HeuristicOutcome, "TARGET_DIFFERS"):
        late.commit(permit)
    shows(target, 1)


@pytest.mark.parametrize("target", over(*TABLES), indirect=True)
def test_batches_without_rows_leave_no_trace(target: Target) -> None:
    """The last batch with rows counts; where it is too far back, nothing is asked."""
    query = target.query()
    tasks = query.tasks
    query.tasks = lambda batch_id: tasks(batch_id) if batch_id in (0, 8) else [[]]
    for batch_id in range(10):
        query.run(batch_id)
    shows(target, 0, 8)


def frames(target: Target, batch_id: int) -> list[object]:
    return [target.frame(batch) for task in tasks_of(batch_id) for batch in task]
