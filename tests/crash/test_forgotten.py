"""The broker forgets a transactional id that was idle (after a week, by default): what a long
absence leaves.

Without Spark, on a broker that forgets after three seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from exactum.testing import Crash
from tests.kit.crash.epochs import Query, crash, rows
from tests.kit.crash.oracle import known
from tests.kit.waiting import await_true

pytestmark = pytest.mark.broker

ROWS = [{"key": f"{n}".encode(), "value": f"{n}".encode()} for n in range(50)]


@pytest.fixture(scope="module")
def forgetful() -> Iterator[LocalKafka]:
    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "transactional.id.expiration.ms": 3_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
    }
    with LocalKafka(properties=properties) as cluster:
        yield cluster


def check_exact(query: Query, batches: int) -> None:
    assert query.values() == sorted(r["value"].decode() for r in ROWS * batches)


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_log_tells_what_became_of_a_forgotten_transaction(
    forgetful: LocalKafka, tmp_path: Path, moment: str
) -> None:
    """Killed before or after the commit and away until the id is forgotten: told apart by the log's
    markers, so that what was committed is not written again and what was not is salvaged.
    """
    servers = forgetful.bootstrap_servers
    forgetful.create_topic(f"forgotten-{moment}", partitions=2)
    timeout = {"transaction_timeout_ms": 5_000} if moment == "before" else {}
    query = Query(tmp_path, f"forgotten-{moment}", servers, **timeout)
    with query.driver({("commit", moment): crash}) as driver, pytest.raises(Crash):
        driver.epoch(0, rows(ROWS))
    await_true(lambda: not known(servers, query.query_id), "the ids are forgotten")
    with query.driver() as driver:
        driver.epoch(0, rows(ROWS))
        assert ("TransactionsSalvaged" in driver.names()) is (moment == "before")
    check_exact(query, 1)


@pytest.mark.deep
def test_a_query_that_was_idle_goes_on(
    forgetful: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers that were made ahead of need, and whose ids are forgotten since, do not stop the
    query.
    """
    monkeypatch.setattr("exactum.kafka.producer_pool.POOL_IDLE_MAX_S", 1.5)
    servers = forgetful.bootstrap_servers
    forgetful.create_topic("idle", partitions=2)
    query = Query(tmp_path, "idle", servers)
    with query.driver() as driver:
        driver.epoch(0, rows(ROWS))
        await_true(lambda: not known(servers, query.query_id), "the ids are forgotten")
        driver.epoch(1, rows(ROWS))
    check_exact(query, 2)
