"""SIGKILL of the driver's process tree at every point of an epoch, again and again, in one long
life.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.crash.jobs import live_and_die, new_world
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]

# The point after a step is the point before the next one, so one of the two is here. The order
# matters: each life begins with what the death before it has left behind.
DEATHS = [
    ("a task has rows in an open transaction", {"step": "write", "when": "after"}),
    ("one task has prepared", {"step": "prepare", "when": "after"}),
    (
        "a start has listed what those left open",
        {"step": "list_open", "when": "after", "sink": "out1"},
    ),
    ("the fence is set, nothing swept", {"step": "decide", "when": "after"}),
    ("one sink is swept", {"step": "abort", "when": "after", "sink": "out0"}),
    ("all tasks have prepared", {"step": "verify", "when": "before"}),
    ("one sink is verified", {"step": "verify", "when": "after"}),
    ("all is listed before the decision", {"step": "decide", "when": "before", "nth": 2}),
    ("COMMIT is recorded", {"step": "decide", "when": "after", "nth": 2}),
    ("half of a sink is committed again", {"step": "commit", "when": "half", "sink": "out0"}),
    ("one sink is committed again", {"step": "commit", "when": "after", "sink": "out0"}),
    ("redelivered and drained, Spark has not logged it", {"step": "batch", "when": "after"}),
    ("half of a sink is committed", {"step": "commit", "when": "half", "nth": 2, "sink": "out1"}),
    ("one sink is committed", {"step": "commit", "when": "after", "nth": 2, "sink": "out1"}),
    (
        "the epoch is complete, Spark has not logged it",
        {"step": "batch", "when": "after", "nth": 2},
    ),
    ("Spark has logged it, the next batch begins", {"step": "batch", "when": "before", "nth": 2}),
    ("a start has done nothing yet", {"step": "batch", "when": "before"}),
]


@pytest.mark.deep  # at each commit tests/targets kills a driver when a part of the sinks has committed
def test_killed_at_points_of_an_epoch(broker: Broker, tmp_path: Path) -> None:
    """Whatever point the driver is killed at: nothing undecided is ever visible, everything
    finished is, and at the end both outputs are exact, for a reader that ran throughout and for a
    later one.
    """
    live_and_die(new_world(broker, tmp_path, records=1500, outputs=2), DEATHS)
