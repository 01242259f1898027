"""The wire between the supervisor and its script."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactum.errors import InvariantBroken
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


@pytest.mark.deep
@settings(max_examples=20)
@given(
    text=st.text(st.characters(), max_size=20),
    times=st.sampled_from([1, 900, 100_000, 1_000_000]),
    items=st.sampled_from([1, 3, 2_000]),
)
def test_every_message_is_bounded_by_its_sender(text: str, times: int, items: int) -> None:
    """However long a text is and however many there are, the message arrives: what is short whole,
    a long text with its beginning and how much is missing.
    """
    long = text * times
    fields = {
        "query_id": "q",
        "message": long,
        "event": {"offsets": [long] * min(items, 3), "n": 7},
        "x": [text] * items,
    }
    sent = ChannelMessage("error", fields).encoded()
    assert sent.index(b"\n") <= LINE_BYTES_MAX
    [arrived] = MessageDecoder().feed(sent)
    assert (arrived.kind, arrived.fields["query_id"], arrived.fields["event"]["n"]) == (
        "error",
        "q",
        7,
    )
    said, left = str(arrived.fields["message"]), len(long)
    if said != long:
        kept, _, note = said.rpartition(" [cut: ")
        assert long.startswith(kept) and kept
        assert note == f"{left - len(kept):,} more characters]"
    if left < 1_000:
        assert said == long


def test_what_no_cut_makes_small_enough_is_an_error() -> None:
    """A message that consists of nothing but structure is not sent in halves."""
    deep: dict[str, object] = {}
    for _ in range(5):
        deep = {str(number): deep for number in range(10)}
    with pytest.raises(InvariantBroken):
        ChannelMessage("event", {"event": deep, "another": deep}).encoded()


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
