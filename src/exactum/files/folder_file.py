"""One file of a task in a folder: durable when it is finished."""

from __future__ import annotations

import contextlib
import os

import pyarrow as pa

from exactum.durable import sync_open


class FolderFile:
    """A file written through Arrow's own stream and fsynced through a descriptor that was open all
    the time, so that no write error between the two can be missed. One that is dropped lets go of
    the file."""

    _descriptor: int | None = None

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            self.stream = pa.OSFile(path, "wb")
        except BaseException:
            self.discard()
            raise

    def position(self) -> int:
        return int(self.stream.tell())

    def finish(self) -> int:
        try:
            self.stream.close()
            if self._descriptor is None:
                raise ValueError("finish() of a file that was discarded")
            sync_open(self._descriptor)
            return os.fstat(self._descriptor).st_size
        finally:
            self.discard()

    def discard(self) -> None:
        self._let_go()
        stream = getattr(self, "stream", None)
        if stream is not None and not stream.closed:
            with contextlib.suppress(OSError):  # nobody wants what it could not write
                stream.close()

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        # the stream lets go by itself, after an encoder that still ends its file in it
        self._let_go()
