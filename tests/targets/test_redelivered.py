"""What a dead driver has decided is finished by the next start, in every kind of target."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.oracle import Checkpoint, check_at_rest, ongoing
from tests.kit.run.run_command import Command
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.targets import supervised_bank
from tests.kit.targets.api import Api
from tests.kit.targets.ledger import Posting, Targets, Transfers, check_exact, check_shown
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb]

SEED = 20261121
SCRIPT = Path(supervised_bank.__file__)
OPTIONS = ["--restart-delay", "1 h"]
PER_EPOCH = 60
LIFE_TIMEOUT_S = WAIT_MAX_S  # 10 s on a quiet machine
SESSION = {"master": "local[2]", "spark.sql.shuffle.partitions": 2}
_numbers = itertools.count(1)


class Bank:
    """One supervised query over five targets: its input, its checkpoint and its runs."""

    def __init__(
        self,
        kafka: LocalKafka,
        postgres: LocalPostgres,
        mariadb: LocalMariaDB,
        api: Api,
        folder: Path,
    ) -> None:
        name = f"ahead{next(_numbers)}"
        self._folder = folder
        self.servers = kafka.bootstrap_servers
        self.api = api
        self.transfers = Transfers(f"transfers-{name}", SEED)
        self.targets = Targets(
            self.servers,
            f"postings-{name}",
            postgres,
            mariadb,
            name,
            folder / "lake",
            self.api,
        )
        for topic in (self.transfers.topic, self.targets.topic):
            kafka.create_topic(topic, partitions=2)
        self.targets.create()
        self.transfers.produce(self.servers, 5 * PER_EPOCH)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self._folder / "checkpoint", self.transfers.topic)

    def run(
        self, name: str, death: Mapping[str, Any] | None, max_offsets: int = PER_EPOCH
    ) -> Command:
        targets = self.targets
        spec = {
            "folder": str(self._folder),
            "bootstrap_servers": self.servers,
            "source": self.transfers.topic,
            "topic": targets.topic,
            "postgres": targets.postgres.url_of(targets.database),
            "mysql": targets.mysql.url_of(targets.database),
            "files": str(targets.files),
            "checkpoint": str(self.checkpoint.folder),
            "max_offsets": max_offsets,
        }
        play = {
            "session": SESSION,
            "spec": spec,
            "api": self.api.url,
            "folder": str(self._folder),
            "death": death,
        }
        return Command(self._folder / name, SCRIPT, OPTIONS, [json.dumps(play)])

    def up_to(self, batch_id: int) -> list[Posting]:
        """The postings of the epochs up to this one."""
        return self.transfers.before(self.checkpoint.ends(batch_id))

    def redelivered(self, pid: int) -> list[int]:
        lines = (self._folder / "events").read_text().splitlines()
        return [
            e["batch_id"]
            for e in map(json.loads, lines)
            if (e["pid"], e["event"]) == (pid, "EpochRedelivered")
        ]

    def finish(self) -> None:
        """Run it to its end: everything is in every target once, no request was repeated,
        nothing is left anywhere.
        """
        with self.run("rest", None, max_offsets=3000) as run:
            assert run.ends(LIFE_TIMEOUT_S) == 0
            assert len(run.pids()) == 1
        assert self.redelivered(run.pids()[0]) == [1], (
            "what stands in the log is sent again once, and changes nothing"
        )
        check_exact(self.targets, self.transfers)
        assert len(set(self.api.keys)) == len(self.api.keys)
        check_at_rest(self.servers, [self.targets.topic], self.checkpoint.query_id)


@pytest.fixture
def api() -> Iterator[Api]:
    served = Api()
    yield served
    served.stop()


@pytest.fixture
def bank(
    kafka: LocalKafka, postgres: LocalPostgres, mariadb: LocalMariaDB, api: Api, tmp_path: Path
) -> Bank:
    return Bank(kafka, postgres, mariadb, api, tmp_path)


@pytest.mark.deep
def test_what_is_decided_stands_in_every_target_and_nothing_else(bank: Bank) -> None:
    """The driver dies with everything prepared: no target shows any of it. The next one dies right
    after its decision: no target shows any of it, either. The third run commits what was decided
    first, and ends exact.
    """
    for at in ("prepared", "decided"):
        with bank.run(at, {"at": at, "batch_id": 1}) as run:
            run.says("is started again in 3600.0 s", timeout_s=LIFE_TIMEOUT_S)
            run.signal(signal.SIGTERM)
            assert run.ends(60) == 0
        check_shown(bank.targets, bank.up_to(0))
        left = bank.targets.left_over()
        assert all(left.values()), f"everything had prepared: {left}"
        assert ongoing(bank.servers, bank.checkpoint.query_id)
    bank.finish()
