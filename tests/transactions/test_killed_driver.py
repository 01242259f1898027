"""A driver with all that it started is killed by SIGKILL; an operator settles what it left in four
targets, before anything is started again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exactum import FileSink, KafkaSink, MySQLSink, PostgresSink
from exactum.local import LocalKafka
from tests.kit.query_record import note, on_file
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.targets.ledger import Targets, check_whole_transfers
from tests.kit.transactions.given import give_always
from tests.kit.transactions.operator import listed, transactions
from tests.targets.test_one_decision import POINTS, Bank

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.mariadb,
    pytest.mark.deep,
]


def sinks_of(targets: Targets) -> list[Any]:
    return [
        KafkaSink(targets.topic, bootstrap_servers=targets.bootstrap_servers),
        PostgresSink(targets.postgres.url_of(targets.database), table="postings"),
        MySQLSink(targets.mysql.url_of(targets.database), table="postings"),
        FileSink(targets.files, partition_by=["account"]),
    ]


def test_settled_by_hand(
    kafka: LocalKafka,
    postgres: LocalPostgres,
    mariadb: LocalMariaDB,
    tmp_path: Path,
) -> None:
    """Leftovers are aborted, decided epochs finished, wherever the death came; the books agree after
    each step, and the next start adds nothing.
    """
    bank = Bank(kafka, postgres, mariadb, tmp_path)
    bank.transfers.produce(kafka.bootstrap_servers, 600)
    checkpoint = tmp_path / "checkpoint"
    for point in ("prepared", "decided", "kafka", "all"):
        when, faults = POINTS[point]
        print(f"death: {when}", flush=True)
        with bank.life(*faults) as job:
            job.dies()
        query_id = on_file(checkpoint).query_id
        # The job wraps its decision log, which is the one in the checkpoint.
        note(checkpoint, query_id, decision_log="")
        arguments = ("--checkpoint", checkpoint)
        give_always(query_id, lambda: sinks_of(bank.targets))
        if point == "prepared":
            found = listed(checkpoint, status=1)
            assert {t["sink"].partition(":")[0] for t in found} == {
                "kafka",
                "postgres",
                "mysql",
                "files",
            }
            assert {t["owner"] for t in found} == {"a dead run of this query"}
            done = transactions("abort", "--all-leftovers", *arguments, "--json", status=0).json
            assert len(done["aborted"]) == len(found)
            assert listed(checkpoint, status=0) == []
        else:
            assert listed(checkpoint, status=int(point != "all"))
            assert transactions("finish", *arguments, "--json", status=0).json["batches"]
            assert {t["state"] for t in listed(checkpoint, status=0)} == {"committed"}
        check_whole_transfers(bank.targets)
    assert bank.finish() == []
    bank.check_exact()
