"""A storage by its place, as users give it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exactum.storage.folder import Folder
from exactum.storage.storage import Storage


def storage_at(
    place: str | Path, store: Any = None, hadoop: Mapping[str, str] | None = None
) -> Storage:
    """``place``: a folder, or the URL of a prefix in an object store, for which ``store`` is
    as ``FileSink`` takes it. ``hadoop``: where ``store`` is None, how Spark reaches the store
    (``spark.hadoop.fs.s3a.endpoint`` and the like); what it does not say is in the environment.

    Raises:
        SettingRefused: the URL or a setting cannot be, or obstore is not installed.
    """
    if "://" not in str(place):
        return Folder(place)
    from exactum.storage.objects import ObjectStore  # obstore is an extra

    return ObjectStore.of(str(place), store, hadoop)
