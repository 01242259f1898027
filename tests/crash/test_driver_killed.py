"""SIGKILL of the driver's process tree at every point of an epoch, again and again, in one long
life.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.crash.jobs import live_and_die, new_world
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]

# The order matters: each life begins with what the death before it has left behind. A recovery that
# dies at each of its calls is in tests/contract, without Spark.
DEATHS = [
    ("a task has rows in an open transaction", {"step": "write", "when": "after"}),
    ("the fence is set, nothing swept", {"step": "decide", "when": "after"}),
    ("all is listed before the decision", {"step": "decide", "when": "before", "nth": 2}),
    ("COMMIT is recorded", {"step": "decide", "when": "after", "nth": 2}),
    ("half of a sink is committed again", {"step": "commit", "when": "half", "sink": "out0"}),
    ("redelivered and drained, Spark has not logged it", {"step": "batch", "when": "after"}),
    ("one sink is committed", {"step": "commit", "when": "after", "nth": 2, "sink": "out1"}),
    ("Spark has logged it, the next batch begins", {"step": "batch", "when": "before", "nth": 2}),
]


@pytest.mark.deep  # at each commit tests/targets kills a driver when a part of the sinks has committed
def test_killed_at_points_of_an_epoch(broker: Broker, tmp_path: Path) -> None:
    """Whatever point the driver is killed at: nothing undecided is ever visible, everything
    finished is, and at the end both outputs are exact, for a reader that ran throughout and for a
    later one.
    """
    live_and_die(new_world(broker, tmp_path, records=900, outputs=2), DEATHS)
