"""One life of the script: its process tree, in a session of its own, and the channel to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exactum.errors import Disposition
from exactum.ops import processes
from exactum.ops.run.ending import LastError, Report
from exactum.spark.supervised.supervisor_channel import (
    VARIABLE,
    ChannelMessage,
    MessageDecoder,
    address_of,
)

READ_BYTES = 1 << 16
GRACE_S = 5.0
"""How long the JVM of a script that ended by itself has to leave in its own way."""
POLL_S = 0.02


class Child:
    """Started at once. It prints where we print.

    ``joined``: it has imported exactum and listens. ``ready``: it waits for its turn in
    ``exactly_once``. ``works``: it has completed an epoch. ``heard_s`` is when it last said
    something, ``turn_s`` when it got its turn. ``began_s``: when a query of it began. ``dropped``:
    events that it could not tell, until its last beat. ``reports`` are the errors that ended its
    queries, by query id, ``last`` that of the script, ``over_s`` when its main thread ended with
    that: other threads may go on.
    """

    def __init__(self, command: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.set_inheritable(True)
            self._process = subprocess.Popen(
                command,
                # in a session of its own it cannot read from the terminal
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, VARIABLE: address_of(theirs)},
            )
        ours.setblocking(False)
        self._link = ours
        self._decoder = MessageDecoder()
        self._silent = False
        self.joined = False
        self.ready = False
        self.began_s: float | None = None
        self.works = False
        self.observed_s = self.turn_s = time.monotonic()
        self.dropped = 0
        self.reports: dict[str, Report] = {}
        self.last: LastError | None = None
        self.over_s: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def began(self) -> bool:
        """Whether a query of it has begun."""
        return self.began_s is not None

    @property
    def link(self) -> socket.socket | None:
        """The channel's socket, or None once the other end is closed."""
        return None if self._silent else self._link

    def received(self) -> list[ChannelMessage]:
        """What it has said since the last look. Never blocks."""
        messages: list[ChannelMessage] = []
        while not self._silent:
            try:
                data = self._link.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._silent = True
            messages += self._decoder.feed(data)
        return messages

    def observe(self, message: ChannelMessage, now_s: float) -> None:
        """What a message says of the process itself."""
        self.observed_s = now_s
        fields = message.fields
        if message.kind == "beat":
            self.dropped = int(fields.get("dropped", 0))
        elif message.kind == "hello":
            self.joined = True
        elif message.kind == "ready":
            self.ready = True
        elif message.kind == "error":
            disposition = Disposition(fields["disposition"])
            report = Report(str(fields["name"]), disposition, str(fields["message"]), now_s)
            self.reports[str(fields["query_id"])] = report
        elif message.kind == "last":
            known = None if fields["disposition"] is None else Disposition(fields["disposition"])
            queries = frozenset(map(str, fields["queries"]))
            self.last = LastError(str(fields["name"]), str(fields["message"]), known, queries)
            self.over_s = now_s if fields.get("over") else self.over_s

    def silent_s(self, now_s: float) -> float:
        """For how long it has said nothing. Before it has joined it has nothing to say."""
        return now_s - self.observed_s if self.joined else 0.0

    def give_turn(self) -> None:
        """Its queries may run."""
        self.observed_s = self.turn_s = time.monotonic()
        self._say("turn")

    def ask_to_stop(self) -> None:
        """Its queries are to be stopped after their epochs."""
        self._say("stop")

    def report_source(self, options: Mapping[str, str]) -> None:
        """What the one that it stands by for reads, to warm itself up with."""
        self._say("source", options=options)

    def _say(self, kind: str, **fields: Any) -> None:
        with contextlib.suppress(
            OSError
        ):  # it is dead, or frozen with a full buffer: seen by other signs
            self._link.sendall(ChannelMessage(kind, fields).encoded())

    def status(self) -> int | None:
        """How it ended, negative for a signal; None while it runs. It is not reaped: its id stays
        its own.
        """
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def signal(self, number: signal.Signals) -> None:
        """To the script's own process alone."""
        os.kill(self.pid, number)  # not reaped yet, so it is nobody else's id

    def kill_tree(self, grace_s: float = 0.0, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kill what is left of its tree after ``grace_s``, and reap it. Nothing of it lives when
        this returns.

        ``meanwhile`` is called now and then as long as the grace lasts.

        Raises:
            ExactumError: a process survives SIGKILL for seconds.
        """
        deadline_s = time.monotonic() + grace_s
        while processes.members(self.pid) and time.monotonic() < deadline_s:
            meanwhile()
            time.sleep(POLL_S)
        processes.kill_all(self.pid, set())
        self._process.wait()
        processes.await_gone(self.pid)
        self._link.close()
