"""A real MariaDB server on this machine, for tests, demos and benchmarks."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymysql

from exactum.errors import LocalServerError
from exactum.local.broker import HOST
from exactum.local.kafka import STOP_TIMEOUT_S
from tests.kit.servers.local_server import DATABASE, USER, LocalServer, kept_password, make

GREETING_TIMEOUT_S = 2.0
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/opt/mariadb/bin")


class LocalMariaDB(LocalServer):
    """See the base class. Settings are server variables, as on mariadbd's command line
    (``{"log_bin": "on"}``).
    """

    name = "MariaDB"
    scheme = "mysql"
    _socket_folder: Path | None = None

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, by the plain client, whose session is over then."""
        given = {"user": self.user, "password": self.password, "database": self.database}
        with (
            pymysql.connect(host=HOST, port=self.port, autocommit=True, **given) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            return list(cursor.fetchall())

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """See the base class."""
        super().stop(timeout_s)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder)
            self._socket_folder = None

    def _prepared(self, folder: Path) -> Sequence[str]:
        server = _program("mariadbd")
        if self._socket_folder is None:
            # A socket's path may have 107 bytes, so it cannot live in just any data_dir.
            self._socket_folder = Path(tempfile.mkdtemp(prefix="exactum-sock-", dir="/tmp"))
        (folder / "tmp").mkdir(exist_ok=True)
        common = {
            "datadir": str(folder / "data"),
            # Its own: a server that starts removes the temporary tables it finds, in /tmp those of
            # others too.
            "tmpdir": str(folder / "tmp"),
            **({"user": "root"} if os.geteuid() == 0 else {}),  # only when it is told to
        }
        if not (folder / "data" / "mysql").exists():
            install = [_program("mariadb-install-db"), "--no-defaults", "--skip-name-resolve"]
            install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            make([*install, *_options(common)])
        self.password = kept_password(folder / "password")
        _write_init_file(folder / "init.sql", self.password)
        settings = {
            **common,
            "socket": f"{self._socket_folder}/s",
            "pid_file": str(folder / "mariadbd.pid"),
            "bind_address": HOST,
            "port": str(self.port),
            "init_file": str(folder / "init.sql"),
            "skip_name_resolve": "on",
            "character_set_server": "utf8mb4",
            # Durability is left at the server's strict defaults.
            "innodb_buffer_pool_size": "256M",
            "innodb_log_file_size": "256M",
            "performance_schema": "off",
            **self._settings,
        }
        return [server, "--no-defaults", *_options(settings)]

    def _answers(self) -> bool:
        """Whether the server sends its handshake, which it does only after its init file has
        run.
        """
        try:
            with socket.create_connection((HOST, self.port), GREETING_TIMEOUT_S) as client:
                client.settimeout(GREETING_TIMEOUT_S)
                return len(client.recv(5)) == 5
        except OSError:
            return False


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    if found is None:
        raise LocalServerError(f"{name} was not found: apt-get install mariadb-server.")
    return found


def _options(settings: dict[str, str]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def _write_init_file(file: Path, password: str) -> None:
    """The statements that the server runs at each start, one a line."""
    file.touch(mode=0o600)
    file.write_text(
        f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`;\n"
        f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
    )
