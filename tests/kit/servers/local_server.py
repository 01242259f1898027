"""What the database servers of tests, demos and benchmarks have in common."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from exactum.errors import LocalServerError
from exactum.local.broker import HOST, choose_ports
from exactum.local.kafka import START_TIMEOUT_S
from exactum.local.own_process import OwnProcess
from tests.kit.waiting import WAIT_MAX_S

STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.05
USER = "exactum"
DATABASE = "exactum"

Self = TypeVar("Self", bound="LocalServer")


class LocalServer(ABC):
    """A server of this machine, made of the installed package; it listens on the loopback address.

    ``data_dir``: where the data live; reused if it holds a server's data already, and kept at
    ``stop``. None takes a temporary folder that ``stop`` removes. ``port``: 0 takes a free one; it
    stays the same for the life of this object. ``settings``: the server's own, by name; they have
    the last word, and may differ at each start of the same data.

    There is one user, ``exactum``, with all rights and a random password, and an empty database
    ``exactum``. The server dies with the process that started it, even if that is killed. What
    cannot be done raises LocalServerError.
    """

    name: str
    scheme: str
    host = HOST
    user = USER
    database = DATABASE

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
        self.port = port or choose_ports().clients
        self._settings: dict[str, str] = {}
        self.configure(settings or {})
        self._start_timeout_s = start_timeout_s
        self.password = ""
        self._node: OwnProcess | None = None

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Over the loopback interface, with the password."""
        return self.url_of(self.database)

    def url_of(self, database: str, user: str = USER, password: str | None = None) -> str:
        """The same for another database or user."""
        secret = quote(self.password if password is None else password, safe="")
        place = f"{HOST}:{self.port}/{quote(database, safe='')}"
        return f"{self.scheme}://{quote(user, safe='')}:{secret}@{place}"

    @property
    def folder(self) -> Path:
        """Of data and log."""
        folder = self._folder or self._given_folder
        assert folder is not None, "it has none before its first start"
        return folder

    @property
    def pid(self) -> int:
        """Of the server's first process."""
        pid = None if self._node is None else self._node.pid
        assert pid is not None, f"{self.name} does not run"
        return pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._node is not None and self._node.running

    def start(self) -> None:
        """Make the data if there are none, start the server, and wait until it answers. Idempotent
        while it runs.
        """
        if self.running:
            return
        try:
            folder = self._make_folder()
            command = self._prepared(folder)
            if self._node is None:
                self._node = OwnProcess(folder / "server.log")
                atexit.register(self._stop_at_exit, os.getpid())
            self._node.start(command)
            self._await_answer(self._node)
        except BaseException:
            self.stop(timeout_s=0)
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Let the server shut down, kill it after ``timeout_s`` seconds. Idempotent. A temporary
        folder is removed, and the next ``start`` begins anew.
        """
        self._shut_down(timeout_s)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._node = None
        atexit.unregister(self._stop_at_exit)

    def restart(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut down if it runs, and start again on the same data."""
        self._shut_down(timeout_s)
        self.start()

    def kill(self) -> None:
        """SIGKILL, as when the machine loses power; data and port stay. Idempotent."""
        if self._node is not None:
            self._node.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nobody. Idempotent."""
        if self._node is not None:
            self._node.pause()

    def resume(self) -> None:
        """SIGCONT: undo ``pause``. Idempotent."""
        if self._node is not None:
            self._node.resume()

    def configure(self, settings: Mapping[str, str | int]) -> None:
        """Settings for the next start, over those that there are."""
        self._settings |= {name: str(value) for name, value in settings.items()}

    # ---- small steps -------------------------------------------------------------------------

    @abstractmethod
    def _prepared(self, folder: Path) -> Sequence[str]:
        """Make the data if there are none, and the password; returns the server's command."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a client is served."""

    def _shut_down(self, timeout_s: float) -> None:
        if self._node is not None:
            self._node.stop(timeout_s)

    def _make_folder(self) -> Path:
        if self._folder is None:
            made = self._given_folder or Path(tempfile.mkdtemp(prefix="exactum-server-"))
            made.mkdir(parents=True, exist_ok=True)
            self._folder = made
        return self._folder

    def _await_answer(self, node: OwnProcess) -> None:
        end_s = time.monotonic() + self._start_timeout_s
        while not self._answers():
            if not node.running or time.monotonic() > end_s:
                raise LocalServerError(f"{self.name} does not answer:\n{node.log_tail()}")
            time.sleep(POLL_INTERVAL_S)

    def _stop_at_exit(self, owner: int) -> None:
        if os.getpid() == owner:  # a forked child shares the hook, not the process
            self.stop()


def kept_password(file: Path) -> str:
    """That in ``file``, made at the first call."""
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(16))
    return file.read_text()


def make(command: Sequence[str], text: str = "", **how: Any) -> None:
    """Run a command that makes data; ``text`` is its input."""
    how = {"input": text, "capture_output": True, "text": True, "timeout": WAIT_MAX_S, **how}
    done = subprocess.run(command, check=False, **how)
    if done.returncode != 0:
        raise LocalServerError(f"{command} failed:\n{done.stdout}{done.stderr}")
