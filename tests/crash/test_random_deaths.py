"""A query with state that is killed at random steps. Replay: ``EXACTUM_CRASH_SEED``; longer:
``_DEATHS``.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
from pathlib import Path

import pytest

from exactum.spark.write.small_epoch import SETTING as SMALL_EPOCHS
from tests.kit.crash.jobs import check_quiet, new_world
from tests.kit.crash.oracle import (
    check_at_rest,
    check_no_duplicates,
    check_same,
    check_totals,
    read_all,
)
from tests.kit.crash.queries import total
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]

STEPS = ("read", "list_open", "decide", "abort", "write", "prepare", "verify", "commit", "batch")
NTH_MAX = 3


@pytest.mark.deep
@pytest.mark.parametrize("gathered", [False, True])
def test_killed_at_random_steps(broker: Broker, tmp_path: Path, gathered: bool) -> None:
    """Each key's outputs are its running totals, once each, whatever the steps were; its records read
    in the tasks that Spark plans, or together.
    """
    seed = int(os.environ.get("EXACTUM_CRASH_SEED", secrets.randbelow(10**6)))
    deaths = int(os.environ.get("EXACTUM_CRASH_DEATHS", "2"))
    print(f"replay with EXACTUM_CRASH_SEED={seed} EXACTUM_CRASH_DEATHS={deaths}")
    random_ = random.Random(seed)
    spec = {"query": total, "max_offsets": 30}
    session = {SMALL_EPOCHS: gathered}
    world = new_world(broker, tmp_path, records=300 + 150 * deaths, spec=spec, session=session)
    with world.reader() as reader:
        for _ in range(deaths):
            step, when = random_.choice(STEPS), random_.choice(("before", "after"))
            fault = {"step": step, "when": when, "nth": random_.randint(1, NTH_MAX)}
            print(fault)
            with world.job({"faults": [fault]}) as job:
                code = job.wait()
                if code not in (
                    0,
                    -signal.SIGKILL,
                ):  # 0: there was no such moment, as with nothing to abort
                    raise job.failed(f"it ended with {code}")
            check_no_duplicates(reader.caught_up())
        with world.job({"max_offsets": 300}) as job:
            assert job.finishes() == [{"outcome": "finished"}]
            check_quiet(job)
        check_at_rest(world.bootstrap_servers, world.outputs, world.checkpoint.query_id)
        seen = reader.caught_up()
        check_totals(seen, world.source, world.checkpoint)
        check_same(seen, read_all(world.bootstrap_servers, world.outputs))
