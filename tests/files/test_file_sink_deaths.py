"""Files as a target: processes are killed, at each call and at random, while readers look."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.every_call import every_call
from tests.kit.files import epochs_in_files
from tests.kit.files.epochs_in_files import (
    drive,
    driver,
    expected,
    hidden,
    ids_in,
    visible,
)
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

CALLS_MAX = 200


@pytest.mark.sweep
@pytest.mark.parametrize("partition_by", [pytest.param((), marks=pytest.mark.deep), ("day",)])
def test_a_kill_before_every_file_system_call(partition_by: Sequence[str], memory: Path) -> None:
    """SIGKILL before the n-th call that changes the file system, for every n of an epoch: exact
    after a restart.
    """
    for at in every_call(CALLS_MAX):
        folder = memory / str(at)
        folder.mkdir()
        killed = driver(folder, [0], at, partition_by)
        killed.join(WAIT_MAX_S)
        assert killed.exitcode in (0, -signal.SIGKILL)
        drive(str(folder), [0, 1], None, partition_by)
        assert ids_in(folder / "table") == expected([0, 1]), f"killed before call {at}"
        assert hidden(folder / "table") == [], f"killed before call {at}"
        if killed.exitcode == 0:
            break
    assert 30 < at < CALLS_MAX - 10, "an epoch has so many calls"


@pytest.mark.deep
def test_random_kills_with_readers_all_along(memory: Path) -> None:
    """Drivers are killed at random moments; readers that list and open every file meet whole
    files, each row once.
    """
    seed = int(os.environ.get("EXACTUM_SEED", random.randrange(2**32)))
    print(f"EXACTUM_SEED={seed}")
    moments = random.Random(seed)
    stop, failures = threading.Event(), []
    seen = [0, 0]
    table = memory / "table"

    def read() -> None:
        while not stop.is_set():
            try:
                ids = [
                    i for f in visible(table) for i in pq.read_table(table / f)["id"].to_pylist()
                ]
                assert len(ids) == len(set(ids))
                assert len(ids) % (ROWS_OF_A_FILE) == 0
                seen[0] += 1
                seen[1] = max(seen[1], len(ids))
            except Exception as error:
                failures.append(repr(error))
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        kills = 0
        while kills < 20 or (_first(memory) <= 10 and kills < 400):
            kills += 1
            killed = driver(memory, range(_first(memory), 100_000), None, ("day",))
            time.sleep(moments.random() * 0.2)
            killed.kill()
            killed.join(WAIT_MAX_S)
            assert killed.exitcode == -signal.SIGKILL
        last = _first(memory) + 1
        drive(str(memory), range(_first(memory), last + 1), None, ("day",))
    finally:
        stop.set()
        for reader in readers:
            reader.join(WAIT_MAX_S)
    assert failures == []
    assert ids_in(table) == expected(range(last + 1))
    assert hidden(table) == []
    assert last > 10
    print(f"{last + 1} epochs, {seen[0]} readings, up to {seen[1]} rows")


ROWS_OF_A_FILE = epochs_in_files.ROWS // 2


def _first(folder: Path) -> int:
    """Where Spark would go on: the first batch that no driver has reported as done."""
    try:
        return int(json.loads((folder / "done").read_text())) + 1
    except (FileNotFoundError, ValueError):  # not yet there, or torn by the kill
        return max([0, *(int(p.name[:20]) for p in (folder / "log").glob("0*.json"))])
