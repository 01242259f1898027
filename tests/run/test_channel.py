"""The wire between the supervisor and its script."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum.errors import InvariantBroken, Unavailable
from exactum.spark.supervised.process import SupervisedProcess
from exactum.spark.supervised.supervisor_channel import (
    LINE_BYTES_MAX,
    ChannelMessage,
    MessageDecoder,
    address_of,
    inherited,
)
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

JSON = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.lists(st.text(), max_size=3)
)
MESSAGES = st.builds(
    ChannelMessage,
    st.sampled_from(["beat", "run", "event"]),
    st.dictionaries(st.text().filter(lambda key: key != "kind"), JSON, max_size=4),
)


@given(messages=st.lists(MESSAGES, max_size=5), cut=st.integers(1, 50))
def test_messages_arrive_however_they_are_cut(messages: list[ChannelMessage], cut: int) -> None:
    """What was sent is what arrives, in order, whatever the pieces are."""
    sent = b"".join(message.encoded() for message in messages)
    decoder = MessageDecoder()
    arrived = [m for at in range(0, len(sent), cut) for m in decoder.feed(sent[at : at + cut])]
    assert arrived == messages


def test_every_message_is_bounded_by_its_sender() -> None:
    """The error that ends a query, or the script, is told however long its text is, with the beginning of that;
    what is too large is not sent in halves.
    """
    told: list[ChannelMessage] = []

    def report(kind: str, *, wait_s: float, **fields: Any) -> None:
        told.append(ChannelMessage(kind, fields))

    process: Any = SimpleNamespace(_failed={}, report=report)
    SupervisedProcess.report_error(process, Unavailable("long: " + "\0" * 1_000_000), "q")
    SupervisedProcess.report_last(process, Unavailable("long: " + "\ud800x" * 1_500_000))
    for sent, kind in zip(told, ("error", "last"), strict=True):
        [arrived] = MessageDecoder().feed(sent.encoded())
        assert (arrived.kind, arrived.fields["disposition"]) == (kind, "retry")
        assert arrived.fields["message"].startswith("long: ")
        assert arrived.fields["message"].endswith(" more characters]")
    with pytest.raises(InvariantBroken):
        ChannelMessage("event", {"rows": "x" * LINE_BYTES_MAX}).encoded()


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"[]\n",
        b"{}\n",
        b"x" * (LINE_BYTES_MAX + 1),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    """What is not the protocol is an error, and nothing is kept without end."""
    with pytest.raises(InvariantBroken):
        list(MessageDecoder().feed(data))


def test_only_who_inherits_the_socket_takes_part() -> None:
    """A process with the variable but without the socket (or with another one in its place) has
    no part in it.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reads = "from exactum.spark.supervised.supervisor_channel import inherited"
        program = f"import sys; {reads}; print(bool(inherited(sys.argv[1])), end='')"
        command = [sys.executable, "-c", program, address_of(theirs)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for fds, expected in (((theirs.fileno(),), "True"), ((), "False")):
            done = subprocess.run(
                command,
                pass_fds=fds,
                capture_output=True,
                text=True,
                check=True,
                env=environment,
                timeout=WAIT_MAX_S,
            )
            assert done.stdout == expected
        number, _, inode = address_of(theirs).partition(":")
        assert inherited(f"{ours.fileno()}:{inode}") is None
        assert inherited(f"{number}:0") is None
        assert inherited("nonsense") is None
