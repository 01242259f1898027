"""The wire between the supervisor and its script."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum.errors import InvariantBroken, Unavailable
from exactum.ops.run.script_link import ScriptLink
from exactum.spark.supervised.process import SupervisedProcess
from exactum.spark.supervised.supervisor_channel import (
    LINE_BYTES_MAX,
    ChannelMessage,
    MessageDecoder,
)

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


def test_the_plan_that_spark_prints_below_an_error_is_not_told() -> None:
    """The supervisor says in one line how a script ended."""
    told: list[Any] = []
    process: Any = SimpleNamespace(_failed={}, report=lambda _, **fields: told.append(fields))
    error = RuntimeError("[STREAM_FAILED] It failed.\n=== Streaming Query ===\nLogical Plan:\n~X")
    SupervisedProcess.report_last(process, error)
    assert [each["message"] for each in told] == ["[STREAM_FAILED] It failed."]


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


def test_a_folder_that_lies_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where temporary files lie too deep for the address of a socket, it lies elsewhere."""
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    link = ScriptLink()
    assert Path(link.address).exists()
    link.close()
    assert not Path(link.address).parent.exists() and not list(deep.iterdir())
