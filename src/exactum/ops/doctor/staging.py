"""Where rows of tables wait in files until their micro-batch is decided."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from exactum.checkpoint.layout import STAGING
from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import QueryPlace
from exactum.files.place import is_found_below
from exactum.files.sink import FileSink
from exactum.ops.doctor.folder_probe import FOR_FILES, folder_findings
from exactum.ops.problem import Problem, error, ok
from exactum.protocol.sink import Sink
from exactum.sinks.staging import SUFFIX

AREA = "staging"


def findings(
    checkpoint: str | None, staging: str | None, sinks: Mapping[str, Sink]
) -> Iterator[Problem]:
    """``checkpoint`` and ``staging``: as the query is given them."""
    folder = _folder(checkpoint, staging)
    if folder is None:
        yield error(
            AREA,
            f"{staging} is no folder."
            if staging is not None
            else f"{checkpoint} lies on no local or shared file system, and no staging is named.",
            "Rows of tables wait in files until their micro-batch is decided.",
            "Pass staging= to the query, a folder that the driver and all executors share, and "
            "--staging here.",
        )
        return
    path = os.path.realpath(folder)
    for name, sink in sinks.items():
        if isinstance(sink, FileSink) and is_found_below(os.path.realpath(sink.location[0]), path):
            yield error(
                AREA,
                f"{folder} lies within the folder of the sink {name!r}.",
                "Its readers would take what waits there for rows.",
                "Give staging= a folder outside of it.",
            )
    yield from folder_findings(AREA, Path(path), FOR_FILES)
    yield ok(AREA, _files(Path(path)))


def _folder(checkpoint: str | None, staging: str | None) -> Path | None:
    """The one that is given; else the one that the last run was given, or the default."""
    folder = None if checkpoint is None else local_folder(checkpoint)
    if staging is None and folder is not None and (folder / "metadata").exists():
        known = QueryPlace.of(folder).known_sinks()
        staging = None if known is None else known.staging or None
    if staging is not None:
        return local_folder(staging)
    return None if folder is None else folder.absolute() / STAGING


def _files(folder: Path) -> str:
    """Of all queries that have it: what waits, and what the last batches have left."""
    sizes: list[int] = []
    for path in folder.glob(f"*/*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # it was loaded meanwhile
            sizes.append(path.stat().st_size)
    return f"{len(sizes):,} files of rows lie there, {sum(sizes) / 2**20:,.1f} MiB."
