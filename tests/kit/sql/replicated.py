"""A PostgreSQL primary and a standby that streams from it, both real, and what an operator does
with them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.kit.servers.postgres import LocalPostgres, as_server_user, find_programs
from tests.kit.waiting import WAIT_MAX_S, await_true

STANDBY = "standby"


class Pair:
    """``primary`` and ``standby``; which of them takes writes changes with ``promote``."""

    def __init__(self, primary: LocalPostgres, standby: LocalPostgres) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def url(self) -> str:
        """Of both, as a user writes it who knows of no option of libpq."""
        return self.primary.url.replace(
            f":{self.primary.port}/", f":{self.primary.port},127.0.0.1:{self.standby.port}/"
        )

    def run(self, sql: str, server: LocalPostgres | None = None) -> list[tuple[Any, ...]]:
        with psycopg.connect((server or self.primary).url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def synchronous(self) -> None:
        """From here on the primary's commits wait for the standby."""
        self.run(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        self.run("SELECT pg_reload_conf()")
        await_true(
            lambda: self.run("SELECT sync_state FROM pg_stat_replication") == [("sync",)],
            "it is synchronous",
        )

    def caught_up(self) -> bool:
        return self.run("SELECT replay_lsn = pg_current_wal_lsn() FROM pg_stat_replication") == [
            (True,)
        ]

    def waits_for_standby(self) -> list[int]:
        """The processes of sessions whose COMMIT waits for the standby."""
        return [
            pid
            for (pid,) in self.run("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        ]

    def promote(self) -> None:
        assert self.run("SELECT pg_promote()", self.standby) == [(True,)]


@contextmanager
def pair() -> Iterator[Pair]:
    with LocalPostgres() as primary:
        standby = LocalPostgres()
        place = standby._make_folder()
        source = f"{primary.url}?application_name={STANDBY}"
        program = str(find_programs() / "pg_basebackup")
        command = [program, "-d", source, "-D", str(place / "data"), "-R", "-c", "fast"]
        subprocess.run([*as_server_user(), *command], check=True, timeout=WAIT_MAX_S, cwd=place)
        password = place / "password"
        password.write_text(primary.password)
        if os.geteuid() == 0:
            os.chown(password, place.stat().st_uid, place.stat().st_gid)
        try:
            standby.start()
            both = Pair(primary, standby)
            await_true(
                lambda: both.run("SELECT state FROM pg_stat_replication") == [("streaming",)],
                "it streams",
            )
            yield both
        finally:
            standby.stop()
