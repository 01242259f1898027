"""Kafka, PostgreSQL, MariaDB, files and a write-ahead sink in one epoch: the bank's books agree
through any death.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.jobs import Job, World
from tests.kit.crash.oracle import check_at_rest
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.serving import serving
from tests.kit.targets.api import Api
from tests.kit.targets.bank import bank
from tests.kit.targets.ledger import (
    Posting,
    Targets,
    Transfers,
    check_exact,
    check_shown,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb]

SEED = 20261121
SINKS = ("kafka", "postgres", "mysql", "files", "api")
_numbers = itertools.count(1)


class Bank:
    """One query over all targets: its input, its checkpoint and its lives."""

    def __init__(
        self,
        kafka: LocalKafka,
        postgres: LocalPostgres,
        mariadb: LocalMariaDB,
        api: Api,
        folder: Path,
    ) -> None:
        number = next(_numbers)
        servers = kafka.bootstrap_servers
        self.transfers = Transfers(f"transfers-{number}", SEED)
        self.api = api
        name = f"bank{number}"
        self.targets = Targets(
            servers, f"postings-{number}", postgres, mariadb, name, folder, SINKS, api
        )
        for topic in (self.transfers.topic, self.targets.topic):
            kafka.create_topic(topic, partitions=2)
        self.targets.create()
        spec = {
            "query": bank,
            "sinks": {
                "kafka": {"topic": self.targets.topic, "bootstrap_servers": servers},
                "postgres": {"url": postgres.url_of(name)},
                "mysql": {"url": mariadb.url_of(name)},
                "files": {"path": str(self.targets.files)},
                "api": {"url": api.url},
            },
        }
        self.world = World(servers, folder, self.transfers, [self.targets.topic], spec)

    def life(self, *faults: Mapping[str, Any], **spec: Any) -> Job:
        return self.world.job({"faults": faults, **spec})

    def logged(self) -> list[Posting]:
        """The postings of the epochs that Spark has logged as done."""
        checkpoint = self.world.checkpoint
        return self.transfers.before(checkpoint.ends(checkpoint.finished()))

    def check_exact(self) -> None:
        check_exact(self.targets, self.transfers)
        assert len(set(self.api.keys)) == len(self.api.keys), "no request was repeated"
        query_id = self.world.checkpoint.query_id
        check_at_rest(self.targets.bootstrap_servers, [self.targets.topic], query_id)


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Api()) as served:
        yield served


def alone(sink: str, nth: int) -> list[dict[str, Any]]:
    """``sink`` is committed, the others wait before their commits, and everything dies."""
    others = [
        {"step": "commit", "when": "before", "sink": other, "nth": nth, "action": "hold"}
        for other in SINKS
        if other != sink
    ]
    return [*others, {"step": "commit", "when": "after", "sink": sink, "nth": nth}]


# A start decides once, to fence older ones: the second decision is of its first batch.
POINTS: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]] = {
    "prepared": (
        "all have prepared, nothing is decided",
        [{"step": "decide", "when": "before", "nth": 3}],
    ),
    "decided": ("decided, nothing is committed", [{"step": "decide", "when": "after", "nth": 3}]),
    **{sink: (f"only {sink} is committed", alone(sink, nth=2)) for sink in SINKS},
    "all": (
        "all are committed, Spark has not logged it",
        [{"step": "batch", "when": "after", "nth": 2}],
    ),
}


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(SINKS[1:2], id="a database"),
        pytest.param(("prepared", "decided", *SINKS, "all"), id="all", marks=pytest.mark.deep),
    ],
)
def test_the_driver_dies_between_any_two_commits(
    kafka: LocalKafka,
    postgres: LocalPostgres,
    mariadb: LocalMariaDB,
    api: Api,
    tmp_path: Path,
    points: Sequence[str],
) -> None:
    """Each target in turn is the only one that has committed when the process tree is killed."""
    books = Bank(kafka, postgres, mariadb, api, tmp_path)
    books.transfers.produce(kafka.bootstrap_servers, 125 * len(points))
    for point in points:
        when, faults = POINTS[point]
        print(f"death: {when}", flush=True)
        with books.life(*faults) as job:
            job.dies()
        if point in ("prepared", "decided"):
            logged = books.logged()
            assert logged, "a batch was done before"
            check_shown(books.targets, logged)
            assert all(books.targets.left_over().values()), "it waits"
    with books.life(max_offsets=3000) as job:
        assert job.finishes() == [{"outcome": "finished"}]
    books.check_exact()
