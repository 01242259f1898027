"""Where a query's rows wait until they are decided: from what the user gave as ``staging=``."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint import offset_log
from exactum.checkpoint.decision_place import HasCheckpoint, is_object_url
from exactum.checkpoint.layout import STAGING
from exactum.checkpoint.query_record import IN_CHECKPOINT
from exactum.errors import SettingRefused
from exactum.protocol.decision_log import DecisionLog
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage


@dataclass(frozen=True)
class Places:
    """What a query was given for what it keeps: ``decision_log`` and ``staging``; None: where its
    checkpoint is.
    """

    decision_log: DecisionLog | str | Path | None = None
    staging: str | Path | None = None


def staging_at(query: HasCheckpoint, staging: str | Path | None) -> Storage | None:
    """The place that the user gave, or the one below the checkpoint; None where the checkpoint is
    in no folder and no object store, and nothing is given.

    Raises:
        SettingRefused: it is neither a folder nor a prefix in an object store.
    """
    if staging is None:
        return _below_checkpoint(query)
    place = str(staging)
    if is_object_url(place):
        return storage_at(place, hadoop=query.hadoop)
    folder = offset_log.local_folder(place)
    if folder is None:
        raise SettingRefused(
            "STAGING_PLACE",
            f"staging={place!r} is not supported: it must be a folder that the driver and all "
            "executors share, or a prefix in an object store (s3://bucket/prefix). Nothing was "
            "written.",
        )
    return _private(folder)


def _below_checkpoint(query: HasCheckpoint) -> Storage | None:
    if query.folder is not None:
        return _private(query.folder / STAGING)
    # Not every query stages rows: without the extra, a sink that does says what it wants.
    if is_object_url(query.checkpoint) and importlib.util.find_spec("obstore") is not None:
        return storage_at(f"{query.checkpoint.rstrip('/')}/{STAGING}", hadoop=query.hadoop)
    return None


def _private(folder: Path) -> Folder:
    """Rows lie there in plain files: for this user alone."""
    return Folder(os.path.realpath(folder), file_mode=0o600)


def recorded_staging(query: HasCheckpoint, storage: Storage | None) -> str:
    """As it goes on file: ``IN_CHECKPOINT`` for the default, which moves with the checkpoint."""
    default = staging_at(query, None)
    if storage is None or (default is not None and default.where == storage.where):
        return IN_CHECKPOINT
    return storage.where
