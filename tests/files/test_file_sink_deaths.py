"""Files as a target: a process is killed at each call."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.every_call import every_call
from tests.kit.files.epochs_in_files import drive, expected, hidden, ids_in
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

CALLS_MAX = 200
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.kit.files.epochs_in_files"])


@pytest.mark.sweep
@pytest.mark.parametrize("partition_by", [pytest.param((), marks=pytest.mark.deep), ("day",)])
def test_a_kill_before_every_file_system_call(partition_by: Sequence[str], memory: Path) -> None:
    """SIGKILL before the n-th call that changes the file system, for every n of an epoch: exact
    after a restart.
    """
    for at in every_call(CALLS_MAX):
        folder = memory / str(at)
        folder.mkdir()
        killed = FORKS.Process(target=drive, args=(str(folder), [0], at, partition_by))
        killed.start()
        killed.join(WAIT_MAX_S)
        assert killed.exitcode in (0, -signal.SIGKILL)
        drive(str(folder), [0, 1], None, partition_by)
        assert ids_in(folder / "table") == expected([0, 1]), f"killed before call {at}"
        assert hidden(folder / "table") == [], f"killed before call {at}"
        if killed.exitcode == 0:
            break
    assert 30 < at < CALLS_MAX - 10, "an epoch has so many calls"
