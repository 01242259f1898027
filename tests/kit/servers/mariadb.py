"""A real MariaDB server on this machine, for tests, demos and benchmarks."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from exactum.errors import LocalServerError
from exactum.local.broker import HOST, choose_ports
from exactum.local.server_process import START_TIMEOUT_S, STOP_TIMEOUT_S, ServerProcess

INSTALL_TIMEOUT_S = 180.0
GREETING_TIMEOUT_S = 2.0
POLL_INTERVAL_S = 0.05
USER = "exactum"
DATABASE = "exactum"

_PLACES = (
    "/usr/sbin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "/opt/homebrew/opt/mariadb/bin",
)
_SERVER = ("mariadbd", "mysqld")
_INSTALLER = ("mariadb-install-db", "mysql_install_db")


class LocalMariaDB:
    """One MariaDB server of this machine; it listens on the loopback address only.

    Args:
        data_dir: where the data live; reused if it holds a server's data already, and kept at
            `stop`. None takes a temporary folder that `stop` removes.
        port: 0 takes a free one. It stays the same for the life of this object.
        settings: server variables by name, as on mariadbd's command line (``{"log_bin": "on"}``);
            they have the last word over those of this class.
        start_timeout_s: bound of `start` and `restart`.

    There is one user, ``exactum``, with all rights and a random password, and an empty database
    ``exactum``. The process dies with the process that started it, even if that is killed. An
    object is used from one thread at a time. Every method raises LocalServerError if it cannot do
    its work.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        settings: Mapping[str, str | int] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._given_folder = None if data_dir is None else Path(data_dir).absolute()
        self._folder: Path | None = None
        self._port = choose_ports(1, port)[0].clients
        self._settings = {name: str(value) for name, value in (settings or {}).items()}
        self._start_timeout_s = start_timeout_s
        self._password = ""
        self._socket_folder: Path | None = None
        self._node: ServerProcess | None = None

    def __enter__(self) -> LocalMariaDB:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        """The server's port; known before `start`."""
        return self._port

    @property
    def user(self) -> str:
        return USER

    @property
    def password(self) -> str:
        """The password of `user`. Raises LocalServerError before the first `start`."""
        if not self._password:
            raise LocalServerError(
                "the password of a local MariaDB is made when it starts for the first time."
            )
        return self._password

    @property
    def url(self) -> str:
        """``mysql://user:password@host:port/database``. Raises LocalServerError before the first
        `start`.
        """
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The same for another database."""
        login = f"{USER}:{quote(self.password, safe='')}"
        return f"mysql://{login}@{HOST}:{self._port}/{quote(database, safe='')}"

    @property
    def data_dir(self) -> Path:
        """The folder of the data. Raises LocalServerError before `start` if it is temporary."""
        folder = self._folder or self._given_folder
        if folder is None:
            raise LocalServerError("a server without data_dir has a folder only while it runs.")
        return folder

    @property
    def pid(self) -> int:
        """The id of the running process. Raises LocalServerError if it does not run."""
        if self._node is None or not self._node.running:
            raise LocalServerError("MariaDB is not running.")
        return self._node.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._node is not None and self._node.running

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log, empty if there is none."""
        return "" if self._node is None else self._node.log_tail(lines)

    # Life and death

    def start(self) -> None:
        """Start the server if it does not run, and return when it takes connections. Idempotent."""
        if self._node is None:
            self._prepare()
        try:
            self._launch()
        except BaseException:
            self.stop(timeout_s=0)
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut the server down cleanly (SIGTERM), and kill it after `timeout_s` seconds.

        A temporary folder is removed. Idempotent.
        """
        if self._node is not None:
            self._node.stop(timeout_s)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder)
        self._folder = self._node = self._socket_folder = None
        atexit.unregister(self._stop_at_exit)

    def kill(self) -> None:
        """SIGKILL the server; its data and port stay. Idempotent."""
        if self._node is not None:
            self._node.kill()

    def restart(self) -> None:
        """Bring the server back on the same data and port, stopping it first if it still runs."""
        if self._node is None:
            raise LocalServerError("MariaDB was never started: call start().")
        self._node.stop()
        self._launch()

    def pause(self) -> None:
        """SIGSTOP: the port stays open and nobody answers. Idempotent."""
        if self._node is not None:
            self._node.pause()

    def resume(self) -> None:
        """SIGCONT: undo `pause`. Idempotent."""
        if self._node is not None:
            self._node.resume()

    # How it is done

    def _prepare(self) -> None:
        """Make the folder, the system tables unless they are there, and the file that makes the
        user. Idempotent.
        """
        server = _program(_SERVER)
        folder = self._given_folder or Path(tempfile.mkdtemp(prefix="exactum-mariadb-"))
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        atexit.register(self._stop_at_exit, os.getpid())
        try:
            # A socket's path may have 107 bytes, so it cannot live in just any data_dir.
            self._socket_folder = Path(tempfile.mkdtemp(prefix="exactum-sock-", dir="/tmp"))
            (folder / "tmp").mkdir(exist_ok=True)
            if not (folder / "data" / "mysql").exists():
                _install(folder / "data", folder / "tmp", folder / "install.log")
            self._password = _kept_password(folder / "password")
            _write_init_file(folder / "init.sql", self._password)
        except BaseException:
            self.stop()
            raise
        self._command = [server, "--no-defaults", *self._options(folder)]
        self._node = ServerProcess("MariaDB", folder, self._port)

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
            "port": str(self._port),
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

    def _launch(self) -> None:
        """Start the process, and wait until it greets a client."""
        node = self._node
        if node is None:
            raise LocalServerError("MariaDB was never started: call start().")
        node.start(self._command)
        deadline = time.monotonic() + self._start_timeout_s
        while not self._greets():
            if not node.running:
                raise LocalServerError(
                    "MariaDB ended while it started. The last lines of "
                    f"{node.log_file}:\n{node.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise LocalServerError(
                    f"MariaDB did not serve at {HOST}:{self._port} within "
                    f"{self._start_timeout_s:.0f} s. The last lines of "
                    f"{node.log_file}:\n{node.log_tail()}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _greets(self) -> bool:
        """Whether the server sends its handshake, which it does only after its init file has
        run.
        """
        try:
            with socket.create_connection((HOST, self._port), GREETING_TIMEOUT_S) as client:
                client.settimeout(GREETING_TIMEOUT_S)
                return len(client.recv(5)) == 5
        except OSError:
            return False

    def _stop_at_exit(self, owner: int) -> None:
        if os.getpid() == owner:  # a forked child shares the hook, not the process
            self.stop()


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
