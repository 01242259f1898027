"""Files in object stores: the same promises as in a folder, over obstore's store in memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.files.sink import FileSink
from tests.kit.files.epochs_in_files import expected, rows
from tests.kit.nth_call import at_call
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow

REQUESTS = ("put", "get", "list", "delete", "copy", "head")


def sink(store: Any, **settings: Any) -> FileSink:
    return FileSink("memory://bucket/table", store=store, **settings)


def names(store: Any) -> list[str]:
    return sorted(str(m["path"]) for chunk in obstore.list(store) for m in chunk)


def visible(store: Any) -> list[str]:
    return [n for n in names(store) if not n.startswith(".exactum/")]


def staged(store: Any, what: str = ".staged") -> list[str]:
    return [n for n in names(store) if n.startswith(".exactum/") and what in n]


def ids_of_objects(store: Any) -> list[int]:
    """Every id that stands, by pyarrow."""
    content = (bytes(obstore.get(store, n).bytes()) for n in visible(store))
    return sorted(i for c in content for i in pq.read_table(io.BytesIO(c))["id"].to_pylist())


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_failure_at_every_request_of_a_commit(
    monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    """The n-th request fails, before or after its effect, for every n: the next commit carries
    it out, once.
    """
    for at in range(1, 200):
        store = MemoryStore()
        opened = OpenedSink(sink(store, partition_by="day"))
        prepared = opened.prepare(rows(0, 0), rows(0, 1))

        def fail(_: str, call: Callable[[], Any]) -> None:
            if effect == "after":
                call()
            raise obstore.exceptions.GenericError("the connection was reset")

        with monkeypatch.context() as patched:
            at_call(patched, obstore, REQUESTS, at, fail)
            struck = False
            try:
                opened.commit(opened.permit(prepared))
            except Unavailable:
                struck = True
        late = OpenedSink(sink(store))
        assert late.commit(opened.permit(prepared)).committed == tuple(prepared)
        assert ids_of_objects(store) == expected([0], 2)
        assert staged(store) == []
        if not struck:
            break
    print(f"{at} runs")
    assert at > 8


def test_a_listing_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies there: it comes with each micro-batch."""
    opened = OpenedSink(sink(MemoryStore()))
    opened.write(rows(0, 0))
    prepared = opened.prepare(rows(1, 0), batch_id=1)

    def head(*_: Any) -> Any:
        raise AssertionError("an object is asked for")

    monkeypatch.setattr(obstore, "head", head)
    assert [s.identity for s in opened.participant.list_open()] == [p.identity for p in prepared]


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_without_conditional_copies(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """As S3: copied plainly, and copied again after a crash between the copy and the delete."""
    store = MemoryStore()
    opened = OpenedSink(sink(store, partition_by="day"))
    prepared = opened.prepare(rows(0, 0))
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
            opened.commit(opened.permit(prepared))
    assert opened.commit(opened.permit(prepared)).committed == tuple(prepared)
    assert ids_of_objects(store) == expected([0])
    assert staged(store) == []


def test_an_upload_that_fails_aborts_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the store's own words, and nothing visible."""
    store = MemoryStore()
    opened = OpenedSink(sink(store))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise obstore.exceptions.GenericError("QuotaExceeded\nrequest dump")

    monkeypatch.setattr(obstore, "open_writer", refuse)
    task = opened.writer()
    task.write(rows(0, 0))
    with pytest.raises(EpochAborted, match="QuotaExceeded"):
        task.prepare()
    task.abort()
    assert visible(store) == staged(store) == []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"path": "s3://bucket/x", "store": {"no_such_setting": "1"}}, "cannot be used"),
        ({"path": "nosuch://bucket/x"}, "cannot be used"),
        ({"path": "/plain/folder", "store": {}}, "store= is for"),
        ({"path": "s3://b/x", "bytes_per_file_max": 5 * 1024**3}, "in one request"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any], match: str) -> None:
    """Each with one clear message."""
    with pytest.raises(SettingRefused, match=match):
        OpenedSink(FileSink(**arguments))
