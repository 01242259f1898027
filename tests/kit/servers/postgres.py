"""A real PostgreSQL server on this machine, for tests, demos and benchmarks."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.local.broker import HOST
from tests.kit.servers.local_server import DATABASE, POLL_INTERVAL_S, USER, LocalServer

INIT_TIMEOUT_S = 180.0
KILL_TIMEOUT_S = 60.0
INSTALLED = Path("/usr/lib/postgresql")
"""Where Debian and its relatives put each version's programs, outside of PATH."""
SERVER_USER = "postgres"
"""Whom the server runs as when we are root, which it refuses to run as."""

SETTINGS: Mapping[str, str] = {
    "max_prepared_transactions": "64",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "password_encryption": "scram-sha-256",
    "log_line_prefix": "%m [%p] %a ",
    "max_wal_size": "2GB",
}


class LocalPostgres(LocalServer):
    """See the base class. As root it runs as the user ``postgres``."""

    name = "PostgreSQL"
    scheme = "postgresql"

    @property
    def socket_dir(self) -> Path:
        """The folder of the unix socket: libpq's ``host``. Its path may have some 90 bytes."""
        return self.folder

    def kill(self) -> None:
        """To every process of the server at once."""
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
        """Likewise."""
        for process in [*_children(self.pid), self.pid]:
            _signal(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Likewise."""
        for process in [self.pid, *_children(self.pid)]:
            _signal(process, signal.SIGCONT)

    def _shut_down(self, timeout_s: float) -> None:
        if self._node is None or not self._node.running:
            return
        _signal(self.pid, signal.SIGCONT)
        _signal(self.pid, signal.SIGINT)  # "fast": SIGTERM would wait for all clients to leave
        self._node.await_stop(timeout_s)

    def _make_folder(self) -> Path:
        folder = super()._make_folder()
        _give_to_server(folder)
        return folder

    def _prepared(self, folder: Path) -> Sequence[str]:
        programs, data, password = find_programs(), folder / "data", folder / "password"
        if not (data / "PG_VERSION").exists():
            password.touch(mode=0o600)
            password.write_text(secrets.token_urlsafe(16))
            _give_to_server(password)
            shutil.rmtree(data, ignore_errors=True)  # of a start that was cut off
            made = [str(programs / "initdb"), "-D", str(data), "-U", USER]
            made += [f"--pwfile={password}", "-A", "scram-sha-256", "-E", "UTF8"]
            self._run([*made, "--locale=C.UTF-8", "--no-sync"])
            single = [str(programs / "postgres"), "--single", "-D", str(data), "postgres"]
            self._run(single, f'CREATE DATABASE "{DATABASE}";\n')
        self._password = password.read_text()
        server = [str(programs / "postgres"), "-D", str(data), "-p", str(self.port), "-h", HOST]
        settings = {**SETTINGS, **self._settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [*_as_server_user(), *server, "-k", str(folder), *options]

    def _answers(self) -> bool:
        ask = [str(find_programs() / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run([*ask, "-t", "2"], capture_output=True, check=False).returncode == 0

    def _run(self, command: list[str], text: str = "") -> None:
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
            raise LocalServerError(f"PostgreSQL could not make its data: {error}.") from error
        if done.returncode != 0:
            raise LocalServerError(
                "PostgreSQL could not make its data. Every folder on the path must be open to the "
                f"user it runs as.\n{done.stdout}{done.stderr}"
            )


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


def _give_to_server(path: Path) -> None:
    if os.geteuid() == 0:
        user = _server_user()
        os.chown(path, user.pw_uid, user.pw_gid)


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
