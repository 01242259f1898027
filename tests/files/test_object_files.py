"""Files in object stores: the same promises as in a folder, over obstore's store in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest

from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.files.sink import OBJECT_BYTES_MAX, FileSink
from tests.contract.targets import Objects
from tests.contract.test_put_back import frames, shows
from tests.kit.errors import raised
from tests.kit.nth_call import at_call
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow

REQUESTS = ("put", "get", "list", "delete", "copy", "head")


@pytest.fixture
def target(tmp_path: Path) -> Objects:
    return Objects(tmp_path)


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_failure_at_every_request_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    """The n-th request fails, before or after its effect, for every n: the next commit carries
    it out, once.
    """
    for at in range(1, 200):
        target = Objects(tmp_path)
        query = target.query()
        opened = target.opened(query)
        permit = opened.permit(opened.prepare(*frames(target, 0)))

        def fail(_: str, call: Callable[[], Any]) -> None:
            if effect == "after":
                call()
            raise obstore.exceptions.GenericError("the connection was reset")

        with monkeypatch.context() as patched:
            at_call(patched, obstore, REQUESTS, at, fail)
            struck = False
            try:
                opened.commit(permit)
            except Unavailable:
                struck = True
        assert target.opened(query).commit(permit).committed == permit.record.prepared
        shows(target, 0)
        assert target.staged() == []
        if not struck:
            break
    print(f"{at} runs")
    assert at > 8


def test_a_listing_is_one_request(target: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies there: it comes with each micro-batch."""
    opened = target.opened(target.query())
    opened.write(*frames(target, 0))
    prepared = opened.prepare(*frames(target, 1), batch_id=1)

    def head(*_: Any) -> Any:
        raise AssertionError("an object is asked for")

    monkeypatch.setattr(obstore, "head", head)
    assert {s.identity for s in opened.participant.list_open()} == {p.identity for p in prepared}


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_without_conditional_copies(
    target: Objects, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """As S3: copied plainly, and copied again after a crash between the copy and the delete."""
    opened = target.opened(target.query())
    permit = opened.permit(opened.prepare(*frames(target, 0)))
    real, deletes = obstore.copy, []

    def copy(store: Any, from_: str, to: str, *, overwrite: bool = True) -> None:
        if not overwrite:
            raise obstore.exceptions.NotSupportedError("S3 does not support copy-if-not-exists")
        real(store, from_, to)

    def delete(*args: Any) -> None:
        deletes.append(args)
        if len(deletes) < times:
            raise obstore.exceptions.GenericError("the connection was reset")
        undone(*args)

    undone = obstore.delete
    monkeypatch.setattr(obstore, "copy", copy)
    monkeypatch.setattr(obstore, "delete", delete)
    for _ in range(times - 1):
        with pytest.raises(Unavailable):
            opened.commit(permit)
    assert opened.commit(permit).committed == permit.record.prepared
    shows(target, 0)
    assert target.staged() == []


def test_an_upload_that_fails_aborts_the_epoch(
    target: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the store's own words, and nothing visible."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise obstore.exceptions.GenericError("QuotaExceeded\nrequest dump")

    monkeypatch.setattr(obstore, "open_writer", refuse)
    task = target.opened(target.query()).writer()
    task.write(frames(target, 0)[0])
    with raised(EpochAborted, "QuotaExceeded"):
        task.prepare()
    task.abort()
    assert target.rows() == target.staged() == []


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (
            {"path": "s3://bucket/x", "store": {"no_such_setting": "1"}},
            ["STORE_ACCESS", "s3://bucket/x", "no_such_setting"],
        ),
        ({"path": "nosuch://bucket/x"}, ["STORE_ACCESS", "nosuch://bucket/x"]),
        ({"path": "/plain/folder", "store": {}}, ["FILES_ARGUMENT", "'/plain/folder'", "store="]),
        (
            {"path": "s3://b/x", "bytes_per_file_max": 5 * 1024**3},
            ["FILES_ARGUMENT", f"bytes_per_file_max={5 * 1024**3}", OBJECT_BYTES_MAX],
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(
    arguments: dict[str, Any], facts: list[object]
) -> None:
    """Each with one clear message."""
    with raised(SettingRefused, *facts):
        OpenedSink(FileSink(**arguments))
