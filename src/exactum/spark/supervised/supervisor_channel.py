"""The wire between ``exactum run`` and the script it runs: JSON lines over a socket that the script
connects to.

    supervisor -> script    turn, stop
    script -> supervisor    hello, ready, warm, beat, run, event, error, last, stopped

A line is one object with ``kind`` and what belongs to it. The socket's path is in an environment
variable. What else has the variable (a Python worker, a program that the script starts) has no part
in it.

Who sends keeps to the limit of a line: texts of any length, as an error's, are cut before.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from exactum.errors import InvariantBroken

VARIABLE = "EXACTUM_SUPERVISOR"
OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""Spark sets this variable for the script alone, and not for the JVM nor the Python workers."""
KILL_AFTER_S = 10.0
"""How long after SIGTERM follows SIGKILL, whoever of the two ends the script."""
LINE_BYTES_MAX = 1 << 20
TEXT_CHARACTERS_MAX = 1 << 14
"""Of a text of any length that goes into a message."""


@dataclass(frozen=True)
class ChannelMessage:
    """One message."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """As it goes over the wire. Values that JSON has no word for go as text.

        Raises:
            InvariantBroken: it is larger than what the other side takes.
        """
        whole = {"kind": self.kind, **self.fields}
        line = json.dumps(whole, default=str, separators=(",", ":")).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise InvariantBroken(f"A message {self.kind!r} of {len(line)} bytes is too large.")
        return line


class MessageDecoder:
    """Makes messages of what arrives, however it is cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[ChannelMessage]:
        """The messages that are whole by now.

        Raises:
            InvariantBroken: it is not this protocol, or larger than anything it has.
        """
        self._buffer += data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> ChannelMessage | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > LINE_BYTES_MAX:
                raise InvariantBroken(
                    "The channel between exactum run and its script carries something else."
                )
            return None
        try:
            value = json.loads(bytes(self._buffer[:end]))
            kind = str(value.pop("kind"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvariantBroken(
                "The channel between exactum run and its script carries something else."
            ) from error
        del self._buffer[: end + 1]
        return ChannelMessage(kind, value)


def joined(address: str) -> socket.socket | None:
    """This process's end of the channel that lies at ``address``; None where it has no part in
    it.
    """
    # exactum run makes a session for the script, which is its first process.
    if OF_SPARK_SUBMIT not in os.environ and os.getsid(0) != os.getpid():
        return None
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(address)
    except FileNotFoundError:  # the script has joined already
        link.close()
        return None
    except OSError:  # the supervisor is gone: as where it goes later, the channel is at its end
        link.close()
        link, theirs = socket.socketpair()
        theirs.close()
    return link
