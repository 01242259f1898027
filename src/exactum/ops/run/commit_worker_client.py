"""The supervisor's side of finishing: says which queries run, and asks that what is decided of them
be finished in time.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exactum.ops.run.child import READ_BYTES
from exactum.spark.supervised.supervisor_channel import ChannelMessage, MessageDecoder

TIMEOUT_S = 15.0
"""How long finishing may take before the script is started anyway: its own recovery does the
same.
"""
SEND_TIMEOUT_S = 10.0
WORKER = "exactum.ops.run.commit_worker"


@dataclass
class _Process:
    """The helper and the channel to it."""

    popen: subprocess.Popen[bytes]
    link: socket.socket
    decoder: MessageDecoder

    @staticmethod
    def start(sinks: str) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            popen = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(theirs.fileno()), sinks],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.settimeout(SEND_TIMEOUT_S)
        return _Process(popen, ours, MessageDecoder())

    def end(self) -> None:
        self.link.close()
        self.popen.kill()
        self.popen.wait()


class CommitWorkerClient:
    """Keeps where the decisions are, and the helper process that carries them out. One thread.

    ``sinks``: as in ``given_sinks``; None: nothing is finished ahead, and there is no helper.
    ``finished``: called with what the helper says of a query's decided epochs.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        finished: Callable[[Mapping[str, Any]], None] = lambda fields: None,
        sinks: str | None = None,
    ) -> None:
        self._say = say
        self._finished = finished
        self._sinks = sinks
        self._runs: dict[str, ChannelMessage] = {}
        self._process: _Process | None = None
        self._waiting: set[str] = set()
        self._deadline_s = 0.0

    @property
    def link(self) -> socket.socket | None:
        return None if self._process is None else self._process.link

    def take(self, run: ChannelMessage) -> None:
        """A run of a query begins."""
        query_id = str(run.fields["query_id"])
        self._runs.pop(query_id, None)
        if self._sinks is not None and run.fields.get("checkpoint"):
            self._runs[query_id] = run
            self._send(run)

    def begin(self, batches: Mapping[str, int], now_s: float) -> None:
        """Finish what is decided of each query from the given batch on."""
        self._deadline_s = now_s + TIMEOUT_S
        for query_id in sorted(self._runs.keys() & batches.keys()):
            if self._send(
                ChannelMessage("finish", {"query_id": query_id, "batch_id": batches[query_id]})
            ):
                self._waiting.add(query_id)

    def busy(self, now_s: float) -> bool:
        """Whether an answer is still waited for; takes what has arrived. What takes too long is
        ended.
        """
        self._receive()
        if self._waiting and now_s >= self._deadline_s:
            self._lose(f"not done within {TIMEOUT_S:.0f} s")
        return bool(self._waiting)

    def close(self) -> None:
        """End the helper. Idempotent."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._waiting.clear()

    def _send(self, message: ChannelMessage) -> bool:
        try:
            if self._process is None:
                self._process = _Process.start(self._sinks or "")
                for run in self._runs.values():
                    if run is not message:
                        self._process.link.sendall(run.encoded())
            self._process.link.sendall(message.encoded())
        except OSError as error:
            self._lose(str(error))
            return False
        return True

    def _receive(self) -> None:
        process = self._process
        if process is None:
            return
        process.link.setblocking(False)
        try:
            while data := process.link.recv(READ_BYTES):
                for message in process.decoder.feed(data):
                    self._observe(message)
            self._lose("its process ended")
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(str(error))
        finally:
            with contextlib.suppress(OSError):
                process.link.settimeout(SEND_TIMEOUT_S)

    def _observe(self, message: ChannelMessage) -> None:
        fields = message.fields
        if message.kind == "trouble":
            when = "its sinks cannot be imported" if fields["at"] == "run" else "it did not succeed"
            self._say(
                f"finishing of query {fields['query_id']}: {when}; the next start does it. "
                f"{fields['text']}"
            )
        elif fields["batches"]:
            self._finished(fields)
            self._say(_message_of(fields))
            for sink, text in fields["troubles"].items():
                self._say(
                    f"finishing of query {fields['query_id']}: sink {sink!r} is left to the next "
                    f"start. {text}"
                )
        if message.kind == "finished" or fields["at"] == "finish":
            self._waiting.discard(str(fields["query_id"]))

    def _lose(self, why: str) -> None:
        if self._waiting:
            self._say(
                f"what is decided could not be finished ahead ({why}); the next start does it"
            )
        self.close()


def _message_of(fields: Mapping[str, Any]) -> str:
    """What of the decided epochs stands, in one line."""
    epochs = ", ".join(str(batch_id) for batch_id in fields["batches"])
    done, left, took_ms = fields["transactions"], fields["left"], f"{fields['took_ms']:.0f} ms"
    query = f"query {fields['query_id']}: epoch {epochs} is decided"
    if not left:
        return (
            f"{query} and stands in every sink ({fields['rows']} rows in {done} transactions, "
            f"{took_ms})"
        )
    return (
        f"{query}, and {done} of its {done + left} transactions are committed ({fields['rows']} "
        f"rows, {took_ms}); {left} transactions are left to the next start"
    )
