"""``exactum run`` finishes what is decided in every kind of target, before it starts the script
and Spark again.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.deaths import session_members
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
OPTIONS = ["--restart", "fixed-delay", "--restart-strategy.fixed-delay.delay", "1 h"]
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
        module = self._folder / f"sinks_{name}.py"
        module.write_text(
            "from tests.kit.targets.supervised_bank import BankSpec, sinks\n"
            f"SINKS = list(sinks(BankSpec(**{spec!r}), {self.api.url!r}))\n"
        )
        options = [*OPTIONS, "--sinks", f"{module}:SINKS"]
        return Command(self._folder / name, SCRIPT, options, [json.dumps(play)])

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


def nobody_runs(run: Command) -> None:
    """The script and all that it has started is gone, and no other one was started."""
    (pid,) = run.pids()
    assert session_members(pid) == []


@pytest.mark.deep
def test_what_is_decided_stands_in_every_target_and_nothing_else(bank: Bank) -> None:
    """The driver dies with everything prepared: no target shows any of it. The next one dies right
    after its decision: every target shows the whole epoch at once, with no Spark alive. The third
    run ends exact.
    """
    with bank.run("prepared", {"at": "prepared", "batch_id": 1}) as run:
        run.says("is started again in 3600.0 s", timeout_s=LIFE_TIMEOUT_S)
        run.signal(signal.SIGTERM)
        assert run.ends(60) == 0
        assert "cannot be imported" not in run.log
        assert "is decided" not in run.log
    check_shown(bank.targets, bank.up_to(0))
    left = bank.targets.left_over()
    assert all(left.values()), f"everything had prepared: {left}"
    assert ongoing(bank.servers, bank.checkpoint.query_id)

    with bank.run("decided", {"at": "decided", "batch_id": 1}) as run:
        run.says("is started again in 3600.0 s", timeout_s=LIFE_TIMEOUT_S)
        run.says("epoch 1 is decided and stands in every sink (600 rows")
        print([line for line in run.log.splitlines() if "epoch 1 is decided" in line])
        nobody_runs(run)
        check_at_rest(bank.servers, [bank.targets.topic], bank.checkpoint.query_id)
        check_shown(bank.targets, bank.up_to(1))
        nobody_runs(run)
        run.signal(signal.SIGTERM)
        assert run.ends(60) == 0
    bank.finish()


@pytest.mark.deep
def test_targets_that_are_down_are_named_and_the_others_do_not_wait(bank: Bank) -> None:
    """PostgreSQL and the API are down when the driver dies: one line for each of their sinks, the
    epoch stands in the other targets, and the next run finishes it.
    """
    with bank.run("down", {"at": "decided", "batch_id": 1, "waits": True}) as run:
        run.until(
            (bank.checkpoint.folder.parent / "decided").exists, "epoch 1 is decided", LIFE_TIMEOUT_S
        )
        bank.targets.postgres.kill()
        bank.api.stop()
        try:
            os.kill(run.pids()[0], signal.SIGKILL)
            run.says("is left to the next start", 2)
            print([line for line in run.log.splitlines() if "next start" in line])
            for sink in ("postgres:postings", "api"):
                assert f"sink {sink!r} is left to the next start" in run.log
            assert (
                "epoch 1 is decided, and 6 of its 10 transactions are committed (360 rows, "
                in run.log
            )
            nobody_runs(run)
            check_at_rest(bank.servers, [bank.targets.topic], bank.checkpoint.query_id)
            check_shown(bank.targets, bank.up_to(1), apart_from=("postgres", "api"))
            run.signal(signal.SIGTERM)
            assert run.ends(60) == 0
        finally:
            bank.targets.postgres.restart()
            bank.api.start()
    check_shown(bank.targets, bank.up_to(0), apart_from=("kafka", "mysql", "files"))
    bank.finish()
