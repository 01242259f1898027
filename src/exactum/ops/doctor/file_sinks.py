"""Folders and object stores that sinks write to, and the folder of a write-ahead log."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exactum.custom.write_ahead import WriteAheadSink
from exactum.files.place import HIDDEN, OWNERS, owned
from exactum.files.sink import FileSink
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.doctor.folder_probe import FOR_FILES, PROBE, folder_findings
from exactum.ops.problem import Problem, error, ok

STAMP_S = 1.0
"""Object stores stamp in whole seconds."""


def findings(sink: FileSink) -> Iterator[Problem]:
    """Tried where it will write."""
    path, store = sink.location
    area = sink.name
    if "://" in path:
        yield from _object_store(area, path, store)
        return
    folder = Path(path)
    for owner in OWNERS:
        if (folder / owner).exists():
            yield error(area, owned(path, owner), "", "")
    hidden = folder / HIDDEN
    if hidden.exists() and os.stat(hidden).st_dev != os.stat(folder).st_dev:
        yield error(
            area,
            f"{hidden} lies on another file system than {folder}.",
            "A file is published by one rename, which does not go from one to another.",
            f"Let {HIDDEN} be a plain folder: no mount and no link.",
        )
    yield from folder_findings(area, folder, FOR_FILES)


def write_ahead_findings(sink: WriteAheadSink) -> Iterator[Problem]:
    """The folder of its log."""
    yield from folder_findings(f"{sink.name} (write-ahead log)", sink.log_folder, FOR_FILES)


def _object_store(area: str, url: str, store: Any) -> Iterator[Problem]:
    from exactum.files.object_store import (
        ObjectLocation,
        answering,
        exists,
        get,
        obstore,
        remove,
        sizes,
    )

    location = ObjectLocation.of(url, store)
    prefix = f"{HIDDEN}/{PROBE.strip('.-')}-{secrets.token_hex(8)}"
    staged, target = f"{prefix}/staged", f"{prefix}/target"
    with answering(location.where, "could not be tried"):
        try:
            obstore.put(location.store, staged, b"1")
            written_s = time.time()
            listed = sizes(location.store, prefix)
            obstore.copy(location.store, staged, target)
            copied = get(location.store, target)
        finally:
            remove(location.store, [staged, target])
        gone = not exists(location.store, staged) and not exists(location.store, target)
    if "staged" not in listed:
        yield error(
            area,
            f"An object that was just written to {location.where} is not listed.",
            "What is prepared is found by listing.",
            "Use a store whose listings are up to date (S3, GCS, Azure, MinIO).",
        )
    elif copied != b"1" or not gone:
        yield error(
            area,
            f"{location.where} does not copy or delete as it says: the copy holds {copied!r}, "
            f"{'all' if gone else 'not all'} was deleted.",
            "A commit copies objects to their place and deletes the staged ones.",
            "Use another store.",
        )
    else:
        yield ok(area, f"Objects can be put, listed, copied and deleted at {location.where}.")
    if "staged" in listed:
        skew_s = listed["staged"]["last_modified"].timestamp() - written_s
        yield from skew_findings(area, "the store", skew_s, STAMP_S)
    for owner in OWNERS:
        if any(chunk for chunk in obstore.list(location.store, owner, chunk_size=1)):
            yield error(area, owned(location.where, owner), "", "")
