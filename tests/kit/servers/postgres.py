"""A real PostgreSQL server on this machine, for tests, demos and benchmarks."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from exactum.errors import LocalServerError
from exactum.local.broker import HOST
from tests.kit.servers.local_server import DATABASE, USER, LocalServer, kept_password, make
from tests.kit.waiting import WAIT_MAX_S

INSTALLED = Path("/usr/lib/postgresql")
"""Where Debian and its relatives put each version's programs, outside of PATH."""
SERVER_USER = "postgres"
"""Whom the server runs as when we are root, which it refuses to run as. The package makes it."""

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
        if self._node is not None and self.running:
            others = psutil.Process(self.pid).children()
            self._signal(signal.SIGKILL)
            self._node.kill()
            _, left = psutil.wait_procs(others, WAIT_MAX_S)
            assert not left, f"processes of PostgreSQL outlived SIGKILL: {left}"

    def pause(self) -> None:
        """Likewise."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Likewise."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Each is the leader of a group of its own."""
        first = psutil.Process(self.pid)
        for process in (*first.children(), first):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _shut_down(self, timeout_s: float) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGINT)  # "fast": SIGTERM would wait for all clients to leave
        if self._node is not None:
            self._node.await_stop(timeout_s)

    def _make_folder(self) -> Path:
        folder = super()._make_folder()
        _give_to_server(folder)
        return folder

    def _prepared(self, folder: Path) -> Sequence[str]:
        programs, data, password = find_programs(), folder / "data", folder / "password"
        self.password = kept_password(password)
        _give_to_server(password)
        if not (data / "PG_VERSION").exists():
            shutil.rmtree(data, ignore_errors=True)  # of a start that was cut off
            made = [str(programs / "initdb"), "-D", str(data), "-U", USER]
            made += [f"--pwfile={password}", "-A", "scram-sha-256", "-E", "UTF8"]
            make([*as_server_user(), *made, "--locale=C.UTF-8", "--no-sync"], cwd=folder)
            single = [str(programs / "postgres"), "--single", "-D", str(data), "postgres"]
            make([*as_server_user(), *single], f'CREATE DATABASE "{DATABASE}";\n', cwd=folder)
        server = [str(programs / "postgres"), "-D", str(data), "-p", str(self.port), "-h", HOST]
        settings = {**SETTINGS, **self._settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [*as_server_user(), *server, "-k", str(folder), *options]

    def _answers(self) -> bool:
        ask = [str(find_programs() / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run([*ask, "-t", "2"], capture_output=True, check=False).returncode == 0


def find_programs() -> Path:
    """The folder of the newest installed PostgreSQL's programs."""
    found = [p for p in INSTALLED.glob("*/bin/postgres") if p.parts[-3].isdigit()]
    if found:
        return max(found, key=lambda p: int(p.parts[-3])).parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise LocalServerError("PostgreSQL was not found: apt-get install postgresql.")
    return Path(on_path).resolve().parent


def as_server_user() -> list[str]:
    """What to put before a command, so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(SERVER_USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _give_to_server(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, SERVER_USER, SERVER_USER)
