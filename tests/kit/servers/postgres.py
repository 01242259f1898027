"""A real PostgreSQL server on this machine, for tests, demos and benchmarks."""

from __future__ import annotations

import atexit
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from exactum.errors import LocalServerError
from exactum.local.broker import HOST, choose_ports
from exactum.local.server_process import START_TIMEOUT_S, ServerProcess

STOP_TIMEOUT_S = 30.0
INIT_TIMEOUT_S = 180.0
KILL_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.05
INSTALLED = Path("/usr/lib/postgresql")
"""Where Debian and its relatives put each version's programs, outside of PATH."""
SERVER_USER = "postgres"
"""Whom the server runs as when we are root, which it refuses to run as."""
USER = "exactum"
DATABASE = "exactum"
SOCKET_PATH_MAX = 90
"""Longest folder for a unix socket, in bytes; the kernel allows 107 with the file's name."""

SETTINGS: Mapping[str, str] = {
    "max_prepared_transactions": "64",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "password_encryption": "scram-sha-256",
    "log_line_prefix": "%m [%p] %a ",
    "max_wal_size": "2GB",
}


class LocalPostgres:
    """A PostgreSQL server of this machine, made of the installed package.

    Args:
        data_dir: where the data live; reused if it holds a server's data already, and kept at
            `stop`. None takes a temporary folder that `stop` removes.
        port: of the loopback interface; 0 takes a free one. It stays the same for the life of this
            object.
        settings: of postgresql.conf, over those of `SETTINGS`; they may differ at each start of the
            same data.
        password: of the superuser `exactum`; default: a random one. Data that are reused keep
            theirs in a file.
        start_timeout_s: bound of `start` and `restart`.

    The server dies with the process that started it, even if that is killed. As root it runs as the
    user `postgres`. An object is used from one thread at a time. Every method raises
    LocalServerError if it cannot do its work.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        settings: Mapping[str, str | int] | None = None,
        password: str | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._given_folder = None if data_dir is None else Path(data_dir).absolute()
        self._folder: Path | None = None
        self._port = port or choose_ports(1, 0)[0].clients
        self._settings = {
            **SETTINGS,
            **{name: str(value) for name, value in (settings or {}).items()},
        }
        self._password = password
        self.database = DATABASE
        self._start_timeout_s = start_timeout_s
        self._node: ServerProcess | None = None

    def __enter__(self) -> LocalPostgres:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---- where it is -------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._port

    @property
    def password(self) -> str:
        """The superuser's; known from the first `start`, unless it was given."""
        if self._password is None:
            raise LocalServerError("PostgreSQL has no password before its first start.")
        return self._password

    @property
    def url(self) -> str:
        """For the superuser, over the loopback interface, with its password."""
        return self.url_of(self.database)

    def url_of(self, database: str, user: str = USER, password: str | None = None) -> str:
        """The same for another database or user."""
        secret = quote(self.password if password is None else password, safe="")
        login = f"{quote(user, safe='')}:{secret}"
        return f"postgresql://{login}@{HOST}:{self._port}/{quote(database, safe='')}"

    @property
    def socket_dir(self) -> Path:
        """The folder of the unix socket: libpq's `host`."""
        return self.folder

    @property
    def folder(self) -> Path:
        """The folder of data, log and socket. Raises LocalServerError before the first start."""
        if self._folder is None:
            raise LocalServerError("PostgreSQL has no folder before its first start.")
        return self._folder

    @property
    def pid(self) -> int:
        """Of the server's first process. Raises LocalServerError if it does not run."""
        if self._node is None or not self._node.running:
            raise LocalServerError("PostgreSQL is not running.")
        return self._node.pid

    @property
    def running(self) -> bool:
        return self._node is not None and self._node.running

    def log_tail(self, lines: int = 40) -> str:
        """The last `lines` lines of the server's log, empty if there is none."""
        return "" if self._node is None else self._node.log_tail(lines)

    # ---- start and stop ----------------------------------------------------------------------

    def start(self) -> None:
        """Make the data if there are none, start the server, and wait until it answers. Idempotent
        while it runs.
        """
        if self.running:
            return
        programs = find_programs()
        folder = self._make_folder()
        data = folder / "data"
        if not (data / "PG_VERSION").exists():
            self._initialise(programs, folder, data)
        self._password = (folder / "password").read_text()
        if self._node is None:
            self._node = ServerProcess("PostgreSQL", folder, self._port)
            atexit.register(self.stop)
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [
            str(programs / "postgres"),
            "-D",
            str(data),
            "-p",
            str(self._port),
            "-h",
            HOST,
            "-k",
            str(folder),
        ]
        self._node.start([*_as_server_user(), *command, *options])
        self._await_ready(programs)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Let the server shut down (it ends all sessions), kill it after `timeout_s` seconds.
        Idempotent.

        A temporary folder is removed, and the next `start` begins anew.
        """
        self._shut_down(timeout_s)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._node = None
        atexit.unregister(self.stop)

    def restart(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut down if it runs, and start again on the same data."""
        self._shut_down(timeout_s)
        self.start()

    def kill(self) -> None:
        """SIGKILL to every process of the server at once, as when the machine loses power.
        Idempotent.

        `start` then recovers on the same data.
        """
        if self._node is None or not self._node.running:
            return
        processes = [self.pid, *_children(self.pid)]
        for process in processes:
            _signal(process, signal.SIGKILL)
        self._node.kill()
        end_s = time.monotonic() + KILL_TIMEOUT_S
        while any(_exists(process) for process in processes[1:]):
            if time.monotonic() > end_s:
                raise LocalServerError(
                    f"processes of PostgreSQL outlived SIGKILL: {processes[1:]}."
                )
            time.sleep(POLL_INTERVAL_S)

    def pause(self) -> None:
        """SIGSTOP to every process of the server: it keeps its connections and answers nobody.
        Idempotent.
        """
        for process in [*_children(self.pid), self.pid]:
            _signal(process, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: undo `pause`. Idempotent."""
        for process in [self.pid, *_children(self.pid)]:
            _signal(process, signal.SIGCONT)

    def configure(self, settings: Mapping[str, str | int]) -> None:
        """Settings for the next start, over those that there are."""
        self._settings |= {name: str(value) for name, value in settings.items()}

    # ---- small steps -------------------------------------------------------------------------

    def _shut_down(self, timeout_s: float) -> None:
        if self._node is None or not self._node.running:
            return
        _signal(self.pid, signal.SIGCONT)
        _signal(self.pid, signal.SIGINT)  # "fast": SIGTERM would wait for all clients to leave
        self._node.await_stop(timeout_s)

    def _make_folder(self) -> Path:
        if self._folder is not None:
            return self._folder
        if self._given_folder is None:
            folder = Path(tempfile.mkdtemp(prefix="exactum-postgres-"))
        else:
            folder = self._given_folder
            folder.mkdir(parents=True, exist_ok=True)
        if len(os.fsencode(folder)) > SOCKET_PATH_MAX:
            raise LocalServerError(
                f"{folder} is too long a path for PostgreSQL's socket; give a shorter data_dir."
            )
        if os.geteuid() == 0:
            user = _server_user()
            os.chown(folder, user.pw_uid, user.pw_gid)
        self._folder = folder
        return folder

    def _initialise(self, programs: Path, folder: Path, data: Path) -> None:
        password_file = folder / "password"
        if self._password is None:
            self._password = secrets.token_urlsafe(16)
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        if os.geteuid() == 0:
            user = _server_user()
            os.chown(password_file, user.pw_uid, user.pw_gid)
        shutil.rmtree(data, ignore_errors=True)  # of a start that was cut off
        command = [
            str(programs / "initdb"),
            "-D",
            str(data),
            "-U",
            USER,
            f"--pwfile={password_file}",
        ]
        command += ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._run(command, f"make its data in {data}")
        single = [str(programs / "postgres"), "--single", "-D", str(data), "postgres"]
        self._run(single, "create its database", f'CREATE DATABASE "{DATABASE}";\n')

    def _run(self, command: list[str], purpose: str, text: str = "") -> None:
        try:
            done = subprocess.run(
                [*_as_server_user(), *command],
                cwd=self.folder,
                input=text,
                capture_output=True,
                text=True,
                timeout=INIT_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalServerError(f"PostgreSQL could not {purpose}: {error}.") from error
        if done.returncode != 0:
            raise LocalServerError(
                f"PostgreSQL could not {purpose}. Every folder on that path must be open to the "
                f"user it runs as.\n{done.stdout}{done.stderr}"
            )

    def _await_ready(self, programs: Path) -> None:
        end_s = time.monotonic() + self._start_timeout_s
        ask = [str(programs / "pg_isready"), "-q", "-h", HOST, "-p", str(self._port), "-t", "2"]
        while subprocess.run(ask, capture_output=True, check=False).returncode != 0:
            if not self.running:
                raise LocalServerError(
                    f"PostgreSQL ended while it started. Its last lines:\n{self.log_tail()}"
                )
            if time.monotonic() > end_s:
                tail = self.log_tail()
                self.kill()
                raise LocalServerError(
                    f"PostgreSQL did not answer within {self._start_timeout_s:.0f} s. Its last "
                    f"lines:\n{tail}"
                )
            time.sleep(POLL_INTERVAL_S)


def find_programs() -> Path:
    """The folder of the newest installed PostgreSQL's programs.

    Raises:
        LocalServerError: there is none; says how to get it.
    """
    found = [
        p for p in INSTALLED.glob("*/bin") if (p / "postgres").exists() and p.parent.name.isdigit()
    ]
    if found:
        return max(found, key=lambda p: int(p.parent.name))
    on_path = shutil.which("postgres")
    if on_path is not None:
        return Path(on_path).resolve().parent
    raise LocalServerError(
        f"PostgreSQL is not installed: there is no server in {INSTALLED} nor on PATH. Install it: "
        "apt-get install postgresql (Debian, Ubuntu), or brew install postgresql."
    )


def _as_server_user() -> list[str]:
    """What to put before a command, so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    user = _server_user()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _server_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        raise LocalServerError(
            f"PostgreSQL refuses to run as root, and there is no user {SERVER_USER!r}. Install the "
            "package (apt-get install postgresql), which makes one, or start this as another user."
        ) from None


def _children(pid: int) -> list[int]:
    """Every process that ``pid`` started. (Each is the leader of a group of its own.)"""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [child for child, parent in pairs if parent == pid]


def _exists(pid: int) -> bool:
    """Whether it runs; one that is dead and not yet collected does not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
