"""One life of the script: its process tree, in a session of its own, and the channel to it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exactum.errors import Disposition
from exactum.local.own_process import kill_all, members, status_of
from exactum.ops.run.ending import Report
from exactum.ops.run.script_link import ScriptLink
from exactum.ops.run.submit import SIGNALLED
from exactum.spark.supervised.supervisor_channel import VARIABLE, ChannelMessage, MessageDecoder

GRACE_S = 5.0
"""How long the JVM of a script that ended by itself has to leave in its own way."""
JVM_ENDS_S = 30.0
"""How long spark-submit has to end after its script: it stops executors, and tells the status."""
POLL_S = 0.02


class Child:
    """Started at once. It prints where we print.

    ``joined``: it has imported exactum and listens. ``ready``: it waits for its turn in
    ``exactly_once``. ``works``: it has completed an epoch. ``heard_s`` is when it last said
    something, ``turn_s`` when it got its turn. ``began_s``: when a query of it began. ``dropped``:
    events that it could not tell, until its last beat. ``reports`` are the errors that ended its
    queries, by query id, ``last`` that of the script.
    """

    def __init__(self, command: Sequence[str], *, by_submit: bool = False) -> None:
        """``by_submit``: the command is spark-submit, and the script a child of it."""
        self._by_submit = by_submit
        self._link = ScriptLink()
        try:
            self._process = subprocess.Popen(
                command,
                # in a session of its own it cannot read from the terminal
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, VARIABLE: self._link.address},
            )
        except OSError:
            self._link.close()
            raise
        self._script_pid = self._process.pid
        self._decoder = MessageDecoder()
        self._closed_s: float | None = None  # when the other end was
        self.joined = False
        self.ready = False
        self.began_s: float | None = None
        self.works = False
        self.observed_s = self.turn_s = time.monotonic()
        self.dropped = 0
        self.reports: dict[str, Report] = {}
        self.last: Report | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def began(self) -> bool:
        """Whether a query of it has begun."""
        return self.began_s is not None

    @property
    def link(self) -> ScriptLink | None:
        """The channel, or None once the other end is closed."""
        return self._link if self._closed_s is None else None

    def received(self) -> list[ChannelMessage]:
        """What it has said since the last look. Never blocks."""
        messages: list[ChannelMessage] = []
        while self._closed_s is None and (data := self._link.received()) is not None:
            if not data:
                self._closed_s = time.monotonic()
            messages += self._decoder.feed(data)
        return messages

    def observe(self, message: ChannelMessage, now_s: float) -> None:
        """What a message says of the process itself."""
        self.observed_s = now_s
        fields = message.fields
        if message.kind == "beat":
            self.dropped = int(fields.get("dropped", 0))
        elif message.kind == "hello":
            self.joined, self._script_pid = True, int(fields["pid"])
        elif message.kind == "ready":
            self.ready = True
        elif message.kind == "error":
            self.reports[str(fields["query_id"])] = _report(fields, [fields["query_id"]], now_s)
        elif message.kind == "last":
            self.last = _report(fields, fields["queries"], now_s)

    def silent_s(self, now_s: float) -> float:
        """For how long it has said nothing, from its start on; when it has ended, and spark-submit
        has not, it has nothing to say.
        """
        return now_s - self.observed_s if self._closed_s is None else 0.0

    def end_leftover(self, now_s: float) -> None:
        """A spark-submit that outlives its script by so long is killed."""
        if self._by_submit and self._closed_s is not None and now_s - self._closed_s > JVM_ENDS_S:
            os.kill(self.pid, signal.SIGKILL)

    def give_turn(self) -> None:
        """Its queries may run."""
        self.observed_s = self.turn_s = time.monotonic()
        self._say("turn")

    def ask_to_stop(self) -> None:
        """Its queries are to be stopped after their epochs."""
        self._say("stop")

    def _say(self, kind: str, **fields: Any) -> None:
        self._link.send(ChannelMessage(kind, fields).encoded())

    def status(self) -> int | None:
        """See ``own_process.status_of``. Of spark-submit it is that of the script."""
        status = status_of(self._process)
        if status is None or not self._by_submit or status <= SIGNALLED:
            return status
        return SIGNALLED - status

    def signal(self, number: signal.Signals) -> None:
        """To the script's own process alone; to spark-submit where the script is not there, and
        SIGKILL: it ends with everything then.
        """
        # The leader is not reaped yet, so the session is nobody else's.
        is_there = self._script_pid in members(self.pid)
        to_script = is_there and number != signal.SIGKILL
        os.kill(self._script_pid if to_script else self.pid, number)

    def kill(self) -> None:
        """Kill what is left of its tree, and wait for nothing: see ``is_gone``. Idempotent."""
        kill_all(self.pid, set())

    def is_gone(self) -> bool:
        """Whether nothing of its tree lives. Then it is reaped, and not to be asked again."""
        if self.status() is None or members(self.pid):
            return False
        self._process.wait()
        self._link.close()
        return True

    def await_leaving(self) -> None:
        """What is left of its tree has a time to end by itself."""
        deadline_s = time.monotonic() + GRACE_S
        while members(self.pid) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)


def _report(fields: Mapping[str, Any], queries: Iterable[object], now_s: float) -> Report:
    known = None if fields["disposition"] is None else Disposition(fields["disposition"])
    whose = frozenset(map(str, queries))
    return Report(str(fields["name"]), str(fields["message"]), known, whose, now_s)
