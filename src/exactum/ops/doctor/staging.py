"""Where rows of tables wait in files until their micro-batch is decided."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from exactum.checkpoint.decision_place import is_object_url
from exactum.checkpoint.layout import STAGING
from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import QueryPlace
from exactum.files.place import is_found_below
from exactum.files.sink import FileSink
from exactum.ops.doctor.folder_probe import FOR_FILES, folder_findings
from exactum.ops.problem import Problem, error, ok
from exactum.protocol.sink import Sink
from exactum.sinks.staging import SUFFIX
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

AREA = "staging"


def findings(
    checkpoint: str | None, staging: str | None, sinks: Mapping[str, Sink]
) -> Iterator[Problem]:
    """``checkpoint`` and ``staging``: as the query is given them."""
    place = _place(checkpoint, staging)
    is_store = place is not None and is_object_url(place)
    folder = None if place is None or is_store else local_folder(place)
    if place is None or (folder is None and not is_store):
        yield error(
            AREA,
            f"{staging or checkpoint} is neither a folder nor in an object store"
            f"{'' if staging else ', and no staging is named'}.",
            "Rows of tables wait in files until their micro-batch is decided.",
            "Pass staging= to the query, a folder or a prefix in an object store that the driver "
            "and all executors share, and --staging here.",
        )
        return
    where = place if folder is None else os.path.realpath(folder)
    for name, sink in sinks.items():
        if isinstance(sink, FileSink) and is_found_below(_true(sink.location[0]), where):
            yield error(
                AREA,
                f"{place} lies within the folder of the sink {name!r}.",
                "Its readers would take what waits there for rows.",
                "Give staging= a place outside of it.",
            )
    storage: Storage
    if folder is None:
        storage = storage_at(place)
        storage.open()
        yield ok(AREA, f"{place}: objects can be put, listed, copied and deleted.")
    else:
        yield from folder_findings(AREA, Path(where), FOR_FILES)
        storage = Folder(where)
    yield ok(AREA, _files(storage))


def _place(checkpoint: str | None, staging: str | None) -> str | None:
    """The one that is given; else the one that the last run was given, or the default."""
    folder = None if checkpoint is None else local_folder(checkpoint)
    if staging is None and folder is not None and (folder / "metadata").exists():
        staging = QueryPlace.of(folder).record().staging or None
    if staging is not None or checkpoint is None:
        return staging
    above = checkpoint.rstrip("/") if folder is None else folder.absolute()
    return f"{above}/{STAGING}"


def _true(place: str) -> str:
    return place if is_object_url(place) else os.path.realpath(place)


def _files(storage: Storage) -> str:
    """Of all queries that have it: what waits, and what the last batches have left."""
    sizes = [entry.size for entry in storage.entries() if entry.name.endswith(SUFFIX)]
    return f"{len(sizes):,} files of rows lie there, {sum(sizes) / 2**20:,.1f} MiB."
