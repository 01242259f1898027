"""A storage by its place, as users give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.storage.folder import Folder
from exactum.storage.storage import Storage


def storage_at(place: str | Path, store: Any = None) -> Storage:
    """``place``: a folder, or the URL of a prefix in an object store, for which ``store`` is
    as ``FileSink`` takes it.

    Raises:
        SettingRefused: the URL or a setting cannot be, or obstore is not installed.
    """
    if "://" not in str(place):
        return Folder(place)
    from exactum.storage.objects import ObjectStore  # obstore is an extra

    return ObjectStore.of(str(place), store)
