"""A real MariaDB server on this machine, for tests, demos and benchmarks."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.local.broker import HOST
from exactum.local.server_process import STOP_TIMEOUT_S
from tests.kit.servers.local_server import DATABASE, USER, LocalServer

INSTALL_TIMEOUT_S = 180.0
GREETING_TIMEOUT_S = 2.0

_PLACES = (
    "/usr/sbin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "/opt/homebrew/opt/mariadb/bin",
)
_SERVER = ("mariadbd", "mysqld")
_INSTALLER = ("mariadb-install-db", "mysql_install_db")


class LocalMariaDB(LocalServer):
    """See the base class. Settings are server variables, as on mariadbd's command line
    (``{"log_bin": "on"}``).
    """

    name = "MariaDB"
    scheme = "mysql"
    _socket_folder: Path | None = None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """See the base class."""
        super().stop(timeout_s)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder)
            self._socket_folder = None

    def _prepared(self, folder: Path) -> Sequence[str]:
        server = _program(_SERVER)
        if self._socket_folder is None:
            # A socket's path may have 107 bytes, so it cannot live in just any data_dir.
            self._socket_folder = Path(tempfile.mkdtemp(prefix="exactum-sock-", dir="/tmp"))
        (folder / "tmp").mkdir(exist_ok=True)
        if not (folder / "data" / "mysql").exists():
            _install(folder / "data", folder / "tmp", folder / "install.log")
        self._password = _kept_password(folder / "password")
        _write_init_file(folder / "init.sql", self._password)
        return [server, "--no-defaults", *self._options(folder)]

    def _options(self, folder: Path) -> list[str]:
        """The command line. Durability is left at the server's strict defaults."""
        settings = {
            "datadir": str(folder / "data"),
            "socket": f"{self._socket_folder}/s",
            "pid_file": str(folder / "mariadbd.pid"),
            # Its own: a server that starts removes the temporary tables it finds, in /tmp those of
            # others too.
            "tmpdir": str(folder / "tmp"),
            "bind_address": HOST,
            "port": str(self.port),
            "init_file": str(folder / "init.sql"),
            "skip_name_resolve": "on",
            "character_set_server": "utf8mb4",
            "innodb_buffer_pool_size": "256M",
            "innodb_log_file_size": "256M",
            "performance_schema": "off",
            **_as_root(),
            **self._settings,
        }
        return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]

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


def _program(names: tuple[str, ...]) -> str:
    """The path of the first of ``names`` that is installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    for name in names:
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise LocalServerError(
        f"{names[0]} was not found. Install MariaDB: apt-get install mariadb-server (Debian, "
        "Ubuntu; the service need not run), dnf install mariadb-server, or brew install mariadb."
    )


def _as_root() -> dict[str, str]:
    """mariadbd runs as root only when it is told to."""
    return {"user": "root"} if os.geteuid() == 0 else {}


def _install(data: Path, scratch: Path, log_file: Path) -> None:
    """Make the system tables in ``data``, with temporary tables in ``scratch``."""
    command = [
        _program(_INSTALLER),
        "--no-defaults",
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        # Its own, as below: any server that starts meanwhile would remove its temporary tables.
        f"--tmpdir={scratch}",
        *[f"--{name}={value}" for name, value in _as_root().items()],
    ]
    try:
        with log_file.open("ab") as log:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_TIMEOUT_S,
            )
    except subprocess.TimeoutExpired:
        raise LocalServerError(
            f"{command[0]} did not end within {INSTALL_TIMEOUT_S:.0f} s; see {log_file}."
        ) from None
    if done.returncode:
        text = log_file.read_text(errors="replace")[-4_000:]
        raise LocalServerError(
            f"{command[0]} ended with {done.returncode}. The end of {log_file}:\n{text}"
        )


def _kept_password(file: Path) -> str:
    """The password in ``file``, made at the first call."""
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(16))
    return file.read_text()


def _write_init_file(file: Path, password: str) -> None:
    """The statements that the server runs at each start, one a line."""
    file.touch(mode=0o600)
    file.write_text(
        f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`;\n"
        f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
    )
