"""The decision log in a MariaDB that fails over to a standby: of what a failover can lose somebody
is told before, and of what it has lost after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from exactum.errors import InvariantBroken
from exactum.files.slot_log import SlotLog
from exactum.testing.log_contract import record
from tests.kit.errors import raised
from tests.kit.sql.replicated_mariadb import MariaPair, mariadb_pair
from tests.kit.waiting import await_true

pytestmark = pytest.mark.mariadb

ASYNCHRONOUS = "1 of the server's standbys get their data asynchronously"


@pytest.fixture
def servers() -> Iterator[MariaPair]:
    with mariadb_pair() as both:
        yield both


def test_what_an_asynchronous_standby_can_lose_is_said_and_stops_the_run(
    servers: MariaPair, opened: Callable[..., SlotLog], caplog: pytest.LogCaptureFixture
) -> None:
    """A start warns, unless commits wait for the standby before others see what is committed; else
    another driver may act on what is lost a moment later. The primary dies before the standby has the
    last decision: the run that made it stops at its next step, with words, before it writes anything.
    """

    url = servers.primary.url

    def warning(log: SlotLog) -> str:
        caplog.clear()
        log.read(0)
        return caplog.text

    with caplog.at_level(logging.WARNING, "exactum.sql"):
        servers.semi_synchronous("AFTER_COMMIT")
        assert ASYNCHRONOUS in warning(opened(url, "after commit"))
        servers.run("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
        assert warning(opened(url, "after sync")) == ""
        servers.run("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        log = opened(url)
        told = warning(log)
    assert ASYNCHRONOUS in told
    assert "semi-synchronous replication" in told
    log.decide(record(0))
    decided = "SELECT name FROM exactum_decisions WHERE name LIKE '%.json'"
    first = f"{0:020d}-0.json"
    await_true(lambda: _of(servers, decided) == [(first,)], "the standby has the first decision")
    servers.run("STOP SLAVE", servers.standby)
    servers.run("RESET SLAVE ALL", servers.standby)
    await_true(lambda: servers.status("Slaves_connected") == "0", "nobody follows")
    with caplog.at_level(logging.WARNING, "exactum.sql"):
        assert warning(opened(url, "alone")) == "", (
            "without a standby there is none to fail over to"
        )
    assert log.decide(record(1)) == record(1)
    servers.fail_over()
    for step in (lambda: log.read(2), lambda: log.decide(record(2)), lambda: log.prune(100)):
        with raised(InvariantBroken, " 1 of 3 "):
            step()
    assert _of(servers, decided) == [(first,)]
    assert opened(url).read(0) == (record(0),), "the next start finds what there is"


def _of(servers: MariaPair, sql: str) -> list[tuple[str]]:
    """What the standby has; nothing while it has not got the table."""
    tables = servers.run("SHOW TABLES LIKE 'exactum_decisions'", servers.standby)
    return servers.run(sql, servers.standby) if tables else []
