"""One driver is held at each of its steps while another one does everything; then it goes on.
Without Spark.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from exactum.errors import Fenced
from exactum.testing import Crash
from tests.kit.crash.epochs import Driver, Hold, Moment, Query, crash, rows
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

MOMENTS: list[Moment] = [
    ("list_open", "before"),
    ("list_open", "after"),
    ("decide", "before"),
    ("decide", "after"),
    ("abort", "after"),
    ("write", "after"),
    ("verify", "before"),
    ("verify", "after"),
    ("list_open", "after", 2),
    ("decide", "after", 2),
    ("commit", "half"),
    ("commit", "after"),
]
"""Every gap between two steps of a start and of an epoch: ``after`` one is ``before`` the next."""


def batch(number: int) -> list[object]:
    """Two tasks."""
    return [
        rows(
            [{"key": f"{n}".encode(), "value": f"{number}-{task}-{n}".encode()} for n in range(20)]
        )
        for task in (0, 1)
    ]


def epochs(driver: Driver, numbers: range, failures: list[BaseException]) -> None:
    try:
        for number in numbers:
            driver.epoch(number, *batch(number))
    except BaseException as error:
        failures.append(error)


@pytest.mark.variants(4)
@pytest.mark.parametrize("moment", MOMENTS, ids=["-".join(map(str, moment)) for moment in MOMENTS])
def test_a_driver_held_at_any_step_does_no_harm(
    broker: Broker, tmp_path: Path, moment: Moment
) -> None:
    """A predecessor crashed with everything prepared. One driver starts and is held; another one
    starts and runs two epochs; the held one goes on, and both try the rest. At least one of them is
    fenced, whoever is left finishes, and every epoch stands once.
    """
    servers = broker.servers
    query = Query(tmp_path, broker.topic("held"), servers)
    with query.driver({("verify", "before"): crash}) as dead, pytest.raises(Crash):
        dead.epoch(0, *batch(0))
    hold, failures = Hold(), ([], [])  # type: ignore[var-annotated]
    with query.driver({moment: hold}) as held, query.driver() as other:
        thread = threading.Thread(target=epochs, args=(held, range(4), failures[0]))
        thread.start()
        assert hold.reached.wait(WAIT_MAX_S), failures
        epochs(other, range(2), failures[1])
        assert not failures[1]
        hold.go.set()
        thread.join(WAIT_MAX_S)
        epochs(other, range(2, 4), failures[1])
    assert [type(e) for each in failures for e in each] == [Fenced], (
        "the older one, and only that, is fenced"
    )
    fenced = held if failures[0] else other
    assert "IncarnationFenced" in fenced.names()
    wanted = sorted(
        f"{number}-{task}-{n}" for number in range(4) for task in (0, 1) for n in range(20)
    )
    assert query.values() == wanted
