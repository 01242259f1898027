"""A MariaDB server and one that replicates from it, both real, and what an operator does with
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.waiting import WAIT_MAX_S, await_true


class MariaPair:
    """``primary`` and ``standby``, which have one password; clients know the primary's port."""

    def __init__(self) -> None:
        self.primary = LocalMariaDB(settings=_settings(1))
        self.standby = LocalMariaDB(settings=_settings(2))

    def run(self, sql: str, server: LocalMariaDB | None = None) -> list[Any]:
        return (server or self.primary).ask(sql)

    def status(self, name: str) -> str:
        """A status variable of the primary."""
        return str(self.run(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])

    def replicate(self) -> None:
        """From what the primary writes now."""
        ((file, position, *_),) = self.run("SHOW MASTER STATUS")
        self.run(
            f"CHANGE MASTER TO MASTER_HOST = '{self.primary.host}', "
            f"MASTER_PORT = {self.primary.port}, MASTER_USER = '{self.primary.user}', "
            f"MASTER_PASSWORD = '{self.primary.password}', MASTER_LOG_FILE = '{file}', "
            f"MASTER_LOG_POS = {position}, MASTER_CONNECT_RETRY = 1",
            self.standby,
        )
        self.run("START SLAVE", self.standby)
        # A connection that was lost may be counted beside the one that took its place.
        await_true(lambda: int(self.status("Slaves_connected")) >= 1, "the standby follows")

    def semi_synchronous(self, wait_point: str) -> None:
        """From here on the primary's commits wait for the standby."""
        self.run(f"SET GLOBAL rpl_semi_sync_master_wait_point = {wait_point}")
        self.run(f"SET GLOBAL rpl_semi_sync_master_timeout = {int(1000 * WAIT_MAX_S)}")
        self.run("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        self.run("SET GLOBAL rpl_semi_sync_slave_enabled = ON", self.standby)
        self.run("STOP SLAVE IO_THREAD", self.standby)
        self.run("START SLAVE IO_THREAD", self.standby)
        await_true(
            lambda: self.status("Rpl_semi_sync_master_clients") == "1", "it is semi-synchronous"
        )
        assert self.status("Rpl_semi_sync_master_status") == "ON"

    def fail_over(self) -> None:
        """The standby takes the place of the primary, at its address, with what it has."""
        self.primary.kill()
        self.standby.port = self.primary.port
        self.standby.restart()


@contextmanager
def mariadb_pair() -> Iterator[MariaPair]:
    pair = MariaPair()
    try:
        pair.primary.start()
        (pair.standby._make_folder() / "password").write_text(pair.primary.password)
        pair.standby.start()
        pair.replicate()
        yield pair
    finally:
        pair.standby.stop()
        pair.primary.stop()


def _settings(number: int) -> dict[str, str | int]:
    return {
        "server_id": number,
        "log_bin": "binlog",
        "sync_binlog": 1,
        "innodb_log_file_size": "16M",
    }
