"""The decision log in a PostgreSQL that fails over to a standby: what was acknowledged stands,
or somebody is told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from exactum.errors import InvariantBroken, OutcomeUnknown
from exactum.files.slot_log import SlotLog
from exactum.sql import files
from exactum.testing.log_contract import record
from tests.kit.errors import raised
from tests.kit.sql.replicated import Pair, pair
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.postgres

MOMENT_S = 1.5
"""Nothing that is to wait has ended after so long."""


DECIDED = "SELECT 1 FROM exactum_decisions WHERE name = '{:020d}-0.json'"


@pytest.fixture
def servers() -> Iterator[Pair]:
    with pair() as both:
        yield both


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def refuse_ended(future: Future[object]) -> None:
    time.sleep(MOMENT_S)
    assert not future.done(), f"it did not wait for the standby: {future.result()}"


def cut_off(servers: Pair, deciding: Future[object], by: str) -> None:
    """Its wait for the standby: PostgreSQL answers such a COMMIT with success and a warning. The
    record stands here, and not yet over there.
    """
    await_true(lambda: len(servers.waits_for_standby()) == 1, "the decision waits for the standby")
    (waits,) = servers.waits_for_standby()
    servers.run(f"SELECT {by}({waits})")
    refuse_ended(deciding)


def test_with_a_synchronous_standby_every_acknowledged_decision_survives(
    servers: Pair,
    opened: Callable[..., SlotLog],
    pool: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A role that would not wait for the standby does, one that wants to hear of no warning hears of
    it, and a wait that is cut off is not told as made. The primary dies while decisions are made, and
    the standby is promoted: the log goes on there by itself, and all that it had acknowledged is
    there for the next driver.
    """
    servers.run("ALTER ROLE exactum SET synchronous_commit = 'local'")
    servers.run("ALTER ROLE exactum SET client_min_messages = 'error'")
    servers.synchronous()
    log = opened(servers.url)
    with caplog.at_level(logging.WARNING, "exactum.sql"):
        acknowledged = [log.decide(record(0))]
    assert caplog.text == ""
    for by in ("pg_cancel_backend", "pg_terminate_backend"):
        servers.standby.pause()
        try:
            deciding = pool.submit(log.decide, record(len(acknowledged)))
            cut_off(servers, deciding, by)
        finally:
            servers.standby.resume()
        acknowledged.append(deciding.result(WAIT_MAX_S))
    enough: list[bool] = []

    def decide() -> None:
        while len(acknowledged) < 1_000_000 and not enough:
            acknowledged.append(log.decide(record(len(acknowledged))))

    going_on = pool.submit(decide)
    await_true(lambda: len(acknowledged) > 20, "decisions are made")
    servers.primary.kill()
    before = len(acknowledged)
    servers.promote()
    await_true(lambda: len(acknowledged) > before + 20, "it goes on at the new primary")
    enough.append(True)
    going_on.result(WAIT_MAX_S)
    assert acknowledged == [record(n) for n in range(len(acknowledged))]
    later = opened(servers.url)
    for each in acknowledged:
        assert later.read(each.epoch.batch_id) == (each,)


@pytest.mark.deep
def test_a_decision_of_a_dead_driver_is_acted_on_only_once_the_standby_has_it(
    servers: Pair,
    opened: Callable[..., SlotLog],
    pool: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its driver died while it waited for the standby, and the primary was started anew: now the
    record is seen. To redeliver it would commit what a failover then knows nothing of. That it
    waits is said.
    """
    servers.synchronous()
    log = opened(servers.url)
    log.decide(record(0))
    log._storage._timeout_s = 0.0  # type: ignore[attr-defined]  # it dies with its connection
    servers.standby.pause()
    try:
        deciding = pool.submit(log.decide, record(1))
        await_true(
            lambda: len(servers.waits_for_standby()) == 1, "the decision waits for the standby"
        )
        servers.primary.kill()
        with raised(OutcomeUnknown, f"{1:020d}-0.json"):
            deciding.result(WAIT_MAX_S)
        servers.primary.start()
        assert len(servers.run(DECIDED.format(1))) == 1
        with (
            pytest.MonkeyPatch.context() as patched,
            caplog.at_level(logging.WARNING, "exactum.sql"),
        ):
            patched.setattr(files, "SLOW_AFTER_S", 0.5)
            reading = pool.submit(opened(servers.url).read, 1)
            said = "waits for a synchronous standby that does not answer"
            await_true(lambda: said in caplog.text, "that it waits is said")
            refuse_ended(reading)
    finally:
        servers.standby.resume()
    assert reading.result(WAIT_MAX_S) == (record(1),)
    servers.primary.kill()
    servers.promote()
    assert opened(servers.url).read(1) == (record(1),)


def test_a_decision_that_an_asynchronous_standby_lost_stops_the_run(
    servers: Pair, opened: Callable[..., SlotLog], caplog: pytest.LogCaptureFixture
) -> None:
    """It was warned at the start. The primary dies before the standby has the last decision: the
    run that made it stops at its next step, with words, before it writes anything.
    """
    log = opened(servers.url)
    with caplog.at_level(logging.WARNING, "exactum.sql"):
        log.decide(record(0))
    assert "1 of the server's standbys get their data asynchronously" in caplog.text
    await_true(servers.caught_up, "the standby has the first decision")
    servers.standby._shut_down(30)
    assert log.decide(record(1)) == record(1)
    servers.primary.kill()
    servers.standby.start()
    servers.promote()
    for step in (lambda: log.read(2), lambda: log.decide(record(2)), lambda: log.prune(100)):
        with raised(InvariantBroken, " 1 of 3 ", "asynchronous standby"):
            step()
    assert len(servers.run(DECIDED.format(0), servers.standby)) == 1
    assert servers.run(DECIDED.format(1), servers.standby) == []
    assert opened(servers.url).read(0) == (record(0),), "the next start finds what there is"


def test_a_server_that_is_a_standby_is_left(
    servers: Pair, opened: Callable[..., SlotLog], pool: ThreadPoolExecutor
) -> None:
    """Of two hosts the one that takes writes is found, whichever is named first and wherever it
    moves. Where what stands before the servers leads to a standby, the log connects again until it
    takes writes.
    """
    url = servers.standby.url.replace(
        f":{servers.standby.port}/", f":{servers.standby.port},127.0.0.1:{servers.primary.port}/"
    )
    log, of_standby = opened(url), opened(servers.standby.url)
    assert log.decide(record(0)) == record(0)
    await_true(servers.caught_up, "the standby has it")
    deciding = pool.submit(of_standby.decide, record(1))
    refuse_ended(deciding)
    servers.primary.stop()
    servers.promote()
    assert deciding.result(WAIT_MAX_S) == record(1)
    assert log.decide(record(2)) == record(2)
    assert log.read(0) == (record(0),)
