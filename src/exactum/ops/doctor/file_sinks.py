"""Folders and object stores that sinks write to."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exactum.files.place import HIDDEN, OWNERS, owned
from exactum.files.sink import FileSink
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.doctor.folder_probe import FOR_FILES, PROBE, folder_findings
from exactum.ops.problem import Problem, error, ok
from exactum.storage.at import storage_at

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


def _object_store(area: str, url: str, store: Any) -> Iterator[Problem]:
    storage = storage_at(url, store)
    probe = f"{HIDDEN}/{PROBE.strip('.-')}-{secrets.token_hex(8)}"
    storage.open(probe)
    yield ok(area, f"Objects can be put, listed, copied and deleted at {storage.where}.")
    storage.put(f"{probe}/stamp", b"")
    try:
        written_s = time.time()
        skews_s = [entry.modified_ms / 1000 - written_s for entry in storage.entries(probe)]
    finally:
        storage.delete([f"{probe}/stamp"])
    for skew_s in skews_s:
        yield from skew_findings(area, "the store", skew_s, STAMP_S)
    for owner in OWNERS:
        if storage.names(owner):
            yield error(area, owned(storage.where, owner), "", "")
