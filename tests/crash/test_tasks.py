"""Workers that are killed, tasks that fail, a query with state, and one that is stopped: two
sessions for all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.crash.jobs import World, check_quiet, new_world
from tests.kit.crash.oracle import (
    CommittedReader,
    check_at_rest,
    check_exact,
    check_same,
    check_totals,
    read_all,
)
from tests.kit.crash.queries import total
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TRIES = 4
FAULTS = {
    "worker dies while it writes": {
        "step": "write",
        "when": "after",
        "nth": 2,
        "action": "die",
        "partition": 1,
    },
    "worker dies when it has prepared": {
        "step": "prepare",
        "when": "after",
        "nth": 2,
        "action": "die",
        "partition": 1,
    },
    "task fails once": {
        "step": "write",
        "when": "after",
        "nth": 2,
        "action": "raise",
        "partition": 2,
    },
    "task fails for good": {
        "step": "write",
        "when": "after",
        "nth": 2,
        "action": "raise",
        "partition": 0,
        "tries": 9,
    },
}


@pytest.mark.deep
def test_failing_tasks_and_state(broker: Broker, tmp_path: Path) -> None:
    """A worker killed, or a task that fails once, is retried and the output exact. A task that
    fails for good stops its query with its error; nothing of the batch is visible, nothing open; a
    restart is exact. A query with state, stopped cleanly, then killed between its decision and
    Spark's commit log, then restarted: each key's outputs are the running totals, once each.
    """
    world = new_world(
        broker,
        tmp_path,
        records=240,
        spec={"max_offsets": 90},
        session={"master": f"local[2,{TRIES}]"},
    )
    queries = {
        what: world.beside(
            what.replace(" ", "-"),
            [broker.topic("out", partitions=3)],
            max_offsets=90,
            faults=[fault],
        )
        for what, fault in FAULTS.items()
    }
    state = world.beside("state", [broker.topic("out", partitions=3)], max_offsets=60, query=total)
    killed = {"step": "batch", "when": "after", "nth": 1}
    specs = [
        *(query.played() for query in queries.values()),
        state.played(stop_after=2, drain=False, max_offsets=10),
        state.played(faults=[killed]),
    ]
    with CommittedReader(broker.servers, state.outputs) as reader:
        with world.job(*specs) as job:
            job.dies()
            assert [job.faults.count(f"FAULT {action}") for action in ("die", "raise")] == [
                2,
                1 + TRIES,
            ]
            retried = list(queries)[:3]
            assert [job.result(n)["outcome"] for n in range(5)] == ["finished"] * 3 + [
                "failed",
                "stopped",
            ]
            for number, what in enumerate(retried):
                query = queries[what]
                check_at_rest(query.bootstrap_servers, query.outputs, query.checkpoint.query_id)
                check_exact(
                    read_all(query.bootstrap_servers, query.outputs),
                    world.source.upper(),
                    query.outputs,
                )
                assert "EpochAbandoned" not in [event["event"] for event in job.events(number)], (
                    what
                )
            check_failed_for_good(queries["task fails for good"], job.result(3))
            assert state.checkpoint.finished() < state.checkpoint.decided()
        broken = queries["task fails for good"]
        with world.job(broken.played(faults=[]), state.played()) as job:
            assert job.finishes() == [{"outcome": "finished"}] * 2
            check_quiet(job)
        check_at_rest(broken.bootstrap_servers, broken.outputs, broken.checkpoint.query_id)
        check_exact(
            read_all(broken.bootstrap_servers, broken.outputs), world.source.upper(), broken.outputs
        )
        check_at_rest(state.bootstrap_servers, state.outputs, state.checkpoint.query_id)
        seen = reader.caught_up()
        check_totals(seen, world.source, state.checkpoint)
        check_same(seen, read_all(state.bootstrap_servers, state.outputs))


def check_failed_for_good(world: World, result: dict[str, str]) -> None:
    """The query stopped with the task's own error, and its second batch left no trace."""
    assert result["error"] == "UnknownFailure"
    assert "planned failure after write" in result["message"]
    check_at_rest(world.bootstrap_servers, world.outputs, world.checkpoint.query_id)
    first = world.source.between({}, world.checkpoint.ends(0))
    seen = read_all(world.bootstrap_servers, world.outputs)
    assert sorted((s.key, s.value) for s in seen) == sorted((k, v.upper()) for k, v in first)
