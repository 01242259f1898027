"""The driver is killed between the decision and the commit, and stays down until the broker
gives up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.crash.jobs import World, new_world
from tests.kit.crash.oracle import ongoing
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TIMEOUT_MS = 8_000
DECIDED = {"step": "decide", "when": "after", "nth": 2}


def die_and_time_out(world: World) -> None:
    """Epoch 0 is decided and never committed; nothing of it is open any more."""
    with world.job({"faults": [DECIDED]}) as job:
        job.dies()
    query_id = world.checkpoint.query_id
    await_true(
        lambda: not ongoing(world.bootstrap_servers, query_id),
        "the broker has aborted the transactions",
    )


@pytest.mark.deep
def test_decided_and_timed_out_is_salvaged(broker: Broker, tmp_path: Path) -> None:
    """Killed when the record appears, down past the timeout, killed again in the middle of the
    salvage: nothing is lost or doubled, the events and the log say what happened.
    """
    world = new_world(
        broker, tmp_path, records=240, spec={"sink": {"transaction_timeout_ms": TIMEOUT_MS}}
    )
    with world.reader() as reader:
        die_and_time_out(world)
        assert reader.caught_up() == []
        # What is written from here on is not to time out.
        with world.job({"sink": {}, "faults": [{"step": "salvage", "when": "after"}]}) as job:
            job.dies()
            assert reader.caught_up() == []
        with world.job({"sink": {}}) as job:
            job.finishes()
            # The copy of the salvage that was killed is swept.
            others = ("LeftoversSwept", "EpochBegan", "InputLag", "Progress")
            names = [event["event"] for event in job.events() if event["event"] not in others]
            assert names[:4] == [
                "TransactionsExpired",
                "TransactionsSalvaged",
                "EpochRedelivered",
                "OlderRunsFenced",
            ]
            assert "read back and written again, nothing is lost; 60 rows" in job.log
            world.check_exact(reader)
