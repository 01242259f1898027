"""Rows wait in files until their epoch is decided, and then until they are visible: what becomes of
them meanwhile, whoever else commits or tidies up. (What an operator sees of them: tests/operate.)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath

import pytest

from exactum.errors import EpochAborted, HeuristicOutcome
from exactum.protocol.model import PreparedTransaction, SourceOffsets
from exactum.protocol.sink import Guarantee, WriteOrder
from tests.contract.targets import FRAMED, MARKED, STAGED, Target, over
from tests.contract.test_put_back import frames, shows
from tests.kit.errors import check_error, raised
from tests.kit.sql.sql_epochs import Query

Harm = Callable[[bytes], bytes | None]


def removed(content: bytes) -> None:
    """Behind exactum's back."""


def cut_short(content: bytes) -> bytes:
    return content[:-1]


@pytest.mark.parametrize("target", over(*STAGED), indirect=True)
def test_a_file_that_is_gone_before_the_decision(target: Target) -> None:
    """By a full disk, or a copy that was put back: the epoch is aborted, and the next start is exact."""
    query = target.query()
    for batch_id, harm in enumerate((removed, cut_short)):
        aborted_by(harm, target, query, batch_id)
        query.run(batch_id)
        shows(target, *range(batch_id + 1))


def aborted_by(harm: Harm, target: Target, query: Query, batch_id: int) -> None:
    """It meets one of the batch's files before the driver looks at them."""
    driver, names = query.start(), list[str]()

    def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
        prepared = driver.write(order)
        names.extend(target.staged())
        target.put(names[1], harm(target.content(names[1])))
        return prepared

    with pytest.raises(EpochAborted) as caught:
        driver.coordinator.run(batch_id, SourceOffsets(), write)
    check_error(caught.value, EpochAborted, PurePath(names[1]).name)
    driver.close()
    assert target.staged() == []


@pytest.mark.parametrize("target", over(*STAGED), indirect=True)
def test_a_file_that_is_gone_after_the_decision(target: Target) -> None:
    """Nothing of the epoch gets into the target. The error names what is gone, and how many rows
    that are; put back, the epoch is carried out.
    """
    query = target.query()
    for batch_id, harm in enumerate((removed, cut_short)):
        query.die_before_commit(batch_id)
        name = target.staged()[0]
        content = target.content(name)
        target.put(name, harm(content))
        for _ in range(2):
            with raised(
                HeuristicOutcome, "STAGED_GONE", PurePath(name).name, "rows", "accept --without"
            ):
                query.run(batch_id)
            shows(target, *range(batch_id))
        target.put(name, content)
        query.run(batch_id)
        shows(target, *range(batch_id + 1))
        assert target.staged() == []


def spoil(content: bytes) -> bytes:
    """As many bytes, and others: what a disk or a hand may do."""
    header, end, rest = content.partition(b"\n")
    return header + end + rest[:24] + b"\xff" * (len(rest) - 24)


def flip_a_bit(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def spoil_header(content: bytes) -> bytes:
    return b"\xff" * 9 + content[9:]


def lose_a_frame(content: bytes) -> bytes:
    """Whole in its form and of the right size, with fewer rows than its task has sent."""
    header, end, rest = content.partition(b"\n")
    first = 24 + int.from_bytes(rest[:8], "big")
    assert len(rest) > first
    return header + b" " * first + end + rest[first:]


@pytest.mark.parametrize("target", over(*FRAMED), indirect=True)
def test_a_file_that_is_damaged(target: Target) -> None:
    """It is not what its task wrote: no row of the epoch gets into a table, and to a target that is
    sent rows none behind the damage. Put back, the epoch is carried out.
    """
    query = target.query()
    harms = (cut_short, spoil, flip_a_bit, spoil_header, lose_a_frame)
    for batch_id, harm in enumerate(harms):
        query.die_before_commit(batch_id)
        name, before = target.staged()[0], len(target.rows())
        content = target.content(name)
        target.put(name, harm(content))
        for _ in range(2):
            with pytest.raises(HeuristicOutcome) as caught:
                query.run(batch_id)
            assert caught.value.code in ("STAGED_GONE", "TARGET_REFUSES")
        assert len(target.rows()) - before <= (0 if target.keeps else 2), harm.__name__
        if harm is lose_a_frame and not target.keeps:
            return  # the rows behind it were sent, and noted as the first ones
        target.put(name, content)
        query.run(batch_id)
        shows(target, *range(batch_id + 1))


@pytest.mark.parametrize("target", over(*MARKED), indirect=True)
def test_drivers_that_commit_at_once_agree(target: Target) -> None:
    """The one that has decided and others, or others alone: all succeed, each row is there once."""
    query = target.query()
    for batch_id, decides in enumerate((True, False)):
        first = target.opened(query)
        permit = first.decide(*frames(target, batch_id), batch_id=batch_id)
        if not decides:
            first.participant.close()
            first = target.opened(query)
        drivers = [target.opened(query), target.opened(query), first]
        with ThreadPoolExecutor(len(drivers)) as pool:
            reports = list(pool.map(lambda driver, permit=permit: driver.commit(permit), drivers))
        for driver in drivers:
            driver.participant.close()
        assert {report.committed for report in reports} == {permit.record.prepared}
        shows(target, *range(batch_id + 1))
        assert target.staged() == []


@pytest.mark.parametrize("target", over(*MARKED), indirect=True)
def test_a_commit_days_later_changes_nothing(target: Target) -> None:
    """An old driver wakes up at once, after another batch, and after many, when its own marker may be
    gone; a compaction job has taken the rows: they do not come back.
    """
    query = target.query()
    with target.opened(query) as driver, target.opened(query) as late:
        permit = driver.write(*frames(target, 0))
        for later in ((), (1,), range(60, 300, 60)):
            for batch_id in later:
                driver.write(*frames(target, batch_id), batch_id=batch_id)
            target.compacted()
            for one in (driver, late, driver):
                assert one.commit(permit).committed == permit.record.prepared
            shows(target)


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
@pytest.mark.parametrize("target", over(*STAGED), indirect=True)
def test_weaker_guarantees_leave_no_marker(target: Target, guarantee: Guarantee) -> None:
    """The driver delivers what tasks have staged; where that is gone, it says so."""
    query = target.query()
    with target.opened(query, guarantee=guarantee) as driver:
        prepared = driver.prepare(*frames(target, 0))
        shows(target)
        driver.participant.deliver(prepared)
        shows(target, 0)
        assert driver.participant.last_batch() is None
        assert target.staged() == []
        prepared = driver.prepare(*frames(target, 1), batch_id=1)
        shutil.rmtree(query.staging, ignore_errors=True)
        driver.sweep()
        with raised(EpochAborted, prepared[0].identity):
            driver.participant.deliver(prepared)
    shows(target, 0)
