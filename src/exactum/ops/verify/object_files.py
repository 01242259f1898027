"""The files of a sink in an object store, for those who read them. Needs ``exactum[objects]``."""

from __future__ import annotations

import io
from typing import IO, Any, cast

from exactum.files.object_store import ObjectLocation, get, sizes
from exactum.ops.verify.file_evidence import FileStore


def object_store(url: str, store: Any) -> FileStore:
    """Lists the prefix once.

    Raises:
        SettingRefused: obstore does not take the URL or a setting.
        OSError: the store did not answer (obstore's errors, for the most part).
    """
    location = ObjectLocation.of(url, store)
    found = {path: int(meta["size"]) for path, meta in sizes(location.store, "").items()}

    def read(name: str) -> IO[bytes]:
        content = get(location.store, name)
        if content is None:
            raise FileNotFoundError(name)
        return cast(IO[bytes], io.BytesIO(content))

    return FileStore(lambda: found, found.__getitem__, read)
