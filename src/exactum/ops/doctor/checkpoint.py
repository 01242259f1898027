"""Where a query keeps its state: the checkpoint, the decision log, the staging."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from exactum.checkpoint.layout import DECISIONS, STAGING
from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import (
    KINDS,
    MYSQL_SCHEMES,
    POSTGRES_SCHEMES,
    QueryPlace,
    files_of,
    is_object_url,
    shown_place,
)
from exactum.checkpoint.retirement import refuse_retired
from exactum.checkpoint.run_file import living
from exactum.problem import Problem, error, ok, unknown, warning
from exactum.sinks.staging import SUFFIX
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder
from exactum.storage.proof import PROBE, prove
from exactum.storage.storage import Storage

CHECKPOINT, LOG, WAITS, SINKS = "checkpoint", "decision log", "staging", "sinks"


def checkpoint_problems(checkpoint: str, decision_log: str | None) -> Iterator[Problem]:
    """``checkpoint``: as the query is given it as checkpointLocation."""
    files = files_of(checkpoint)
    if files is not None:
        yield from prove(files, CHECKPOINT)
        yield from _earlier_query(files, decision_log)
    elif decision_log is None:
        yield error(
            CHECKPOINT,
            f"{checkpoint} lies in no folder and no object store, and no decision log is named.",
            "By default the decision log is kept in the checkpoint, which has to create files only "
            "if absent.",
            "Pass decision_log= to the query, and --decision-log here.",
        )
    else:
        yield ok(
            CHECKPOINT,
            f"{checkpoint} is read and written by Spark's own file systems alone: it was not "
            "tried.",
        )


def _earlier_query(files: Storage, decision_log: str | None) -> Iterator[Problem]:
    if files.entry("metadata") is None:
        return
    place = QueryPlace.of(files.where, decision_log)
    refuse_retired(files)
    for run in living(files):
        yield warning(
            CHECKPOINT,
            f"A query runs on it: {run}.",
            "Another start takes the query over from it, and that one stops as fenced.",
            "Stop it first, unless that is what you want.",
        )
    finished = place.finished()
    done = "without a finished micro-batch" if finished is None else f"done up to {finished}"
    yield ok(CHECKPOINT, f"It is the checkpoint of query {place.query_id}, {done}.")
    place.open_log().close()  # refuses where its decisions are kept elsewhere


def log_problems(place: str | None, checkpoint: str | None) -> Iterator[Problem]:
    """``place``: as the query is given it as decision_log=; None for the checkpoint's own."""
    if place is None:
        files = None if checkpoint is None else files_of(checkpoint)
        if files is not None:
            yield from prove(files.below(DECISIONS), LOG)
        return
    if place.partition(":")[0].lower() in POSTGRES_SCHEMES + MYSQL_SCHEMES:
        from exactum.sql.proof import prove_log

        yield from prove_log(place, _nobody(), LOG)
        return
    folder = local_folder(place)
    if folder is None and not is_object_url(place):
        yield error(
            LOG,
            f"{shown_place(place)} is not supported.",
            f"A decision log is {KINDS}.",
            "Name one of these.",
        )
        return
    yield from prove(storage_at(place if folder is None else folder), LOG)


def _nobody() -> str:
    """An id that no query has."""
    return f"{PROBE.strip('.-')}-{secrets.token_hex(8)}"


def staging_problems(checkpoint: str | None, staging: str | None) -> Iterator[Problem]:
    """Where rows of tables wait in files until their micro-batch is decided."""
    place = _staging_of(checkpoint, staging)
    folder = None if place is None or is_object_url(place) else local_folder(place)
    if place is None or (folder is None and not is_object_url(place)):
        yield error(
            WAITS,
            f"{staging or checkpoint} is neither a folder nor in an object store"
            f"{'' if staging else ', and no staging is named'}.",
            "Rows of tables wait in files until their micro-batch is decided.",
            "Pass staging= to the query, a folder or a prefix in an object store that the driver "
            "and all executors share, and --staging here.",
        )
        return
    storage = storage_at(place if folder is None else os.path.realpath(folder))
    yield from prove(storage, WAITS)
    sizes = [entry.size for entry in storage.entries() if entry.name.endswith(SUFFIX)]
    total = f"{sum(sizes) / 2**20:,.1f} MiB"
    yield ok(WAITS, f"{place}: {len(sizes):,} files of rows lie there, {total}.")


def _staging_of(checkpoint: str | None, staging: str | None) -> str | None:
    """The one that is given; else the one that the last run was given, or the default."""
    files = None if checkpoint is None else files_of(checkpoint)
    if staging is None and files is not None and files.entry("metadata") is not None:
        staging = QueryPlace.of(files.where).record().staging or None
    if staging is not None or checkpoint is None:
        return staging
    above = Path(files.root).absolute() if isinstance(files, Folder) else checkpoint.rstrip("/")
    return f"{above}/{STAGING}"


def sinks_not_given(checkpoint: str) -> Iterator[Problem]:
    """Sinks that the query on this checkpoint has had."""
    files = files_of(checkpoint)
    if files is None or files.entry("metadata") is None:
        return
    names = QueryPlace.of(files.where).record().present
    if names:
        yield unknown(
            SINKS,
            f"Not looked at: {', '.join(sorted(map(repr, names)))}.",
            "Servers, tables and folders are tried with the sinks themselves.",
            "Give them by --sinks FILE.py:NAME, or set EXACTUM_SINKS.",
        )
