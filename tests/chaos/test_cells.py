"""Some cells of the fault matrix; ``make chaos`` plays all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chaos.matrix import Cell
from chaos.query_oracle import QueryOracle
from chaos.servers import Servers
from chaos.stage import Stage, play
from tests.kit.crash import oracle
from tests.kit.targets.ledger import Posting
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb]

SEED = 20261121
CELLS = [
    "files:verified:disk-full",
    "kafka:committing:reply-lost",
    "all:between:cut",
    "all:prepared:kill-mariadb",
    "all:committing:kill-postgres",
    "kafka:mid-write:kill-worker",
    "kafka:mid-write:kill-broker",
    "kafka:committing:kill-broker",
    "kafka:decided:expired",
]


@pytest.mark.deep
@pytest.mark.parametrize("name", CELLS)
def test_exact_whatever_happens(stage: Stage, name: str) -> None:
    play(stage, name, SEED)


@pytest.fixture
def servers(stage: Stage) -> Iterator[Servers]:
    with stage.of(Cell.of(CELLS[0])) as found:
        yield found


def write(query_oracle: QueryOracle, postings: Sequence[Posting]) -> None:
    """By a plain producer, in no transaction."""
    producer = Producer(
        {
            "bootstrap.servers": query_oracle.bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    for number, account, amount in postings:
        producer.produce(
            query_oracle.targets.topic,
            json.dumps({"id": number, "account": account, "amount": amount}),
            account,
        )
    assert producer.flush(WAIT_MAX_S) == 0


@pytest.mark.deep
def test_the_oracle_catches_what_is_lost_doubled_or_too_early(
    servers: Servers, tmp_path: Path
) -> None:
    """The oracle itself, without exactum: it passes what is right, and nothing else."""
    query_oracle = QueryOracle(servers, tmp_path, ("kafka",), SEED)
    query_oracle.open()
    query_oracle.produce(4)
    query_oracle.checkpoint.folder.mkdir()
    (query_oracle.checkpoint.folder / "metadata").write_text(json.dumps({"id": "q"}))
    with pytest.raises(AssertionError, match="lacks 8 of 8 postings"):
        query_oracle.check_exact()
    write(query_oracle, query_oracle.transfers.postings)
    query_oracle.check_exact()
    query_oracle.check_so_far()
    decisions = query_oracle.checkpoint.folder / "exactum" / "decisions"
    decisions.mkdir(parents=True)
    with pytest.raises(AssertionError, match="8 postings too many or too early"):
        query_oracle.check_so_far()
    write(query_oracle, query_oracle.transfers.postings[:1])
    with pytest.raises(AssertionError, match="has 1 postings too many"):
        query_oracle.check_exact()


@pytest.mark.deep
def test_the_oracle_catches_an_open_transaction(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is there, and a transaction of the query is still open."""
    monkeypatch.setattr(oracle, "REST_TIMEOUT_S", 1.0)
    query_oracle = QueryOracle(servers, tmp_path, ("kafka",), SEED)
    query_oracle.open()
    query_oracle.produce(1)
    query_oracle.checkpoint.folder.mkdir()
    (query_oracle.checkpoint.folder / "metadata").write_text(json.dumps({"id": "query-left-open"}))
    write(query_oracle, query_oracle.transfers.postings)
    settings = {
        "bootstrap.servers": query_oracle.bootstrap_servers,
        "transactional.id": "exactum/query-left-open/0",
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(WAIT_MAX_S)
    producer.begin_transaction()
    producer.produce(query_oracle.targets.topic, "hidden")
    producer.flush(WAIT_MAX_S)
    with pytest.raises(AssertionError, match="not at rest"):
        query_oracle.check_exact()
    producer.abort_transaction(WAIT_MAX_S)
    monkeypatch.undo()
    query_oracle.check_exact()
