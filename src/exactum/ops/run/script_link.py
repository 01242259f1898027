"""The supervisor's end of the channel to a script. Nothing here blocks."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

from exactum.spark.runtime.sockets import ADDRESS_BYTES_MAX

READ_BYTES = 1 << 16
SHORT = "/tmp"
"""Where the folder lies if the usual place for temporary ones makes its address too long."""


class ScriptLink:
    """To a script that connects to it: ``address`` is what its environment says.

    The socket lies in a folder that only this user can enter, and is gone once the script has come:
    nobody else takes part. What is sent before that waits.
    """

    def __init__(self) -> None:
        self._folder = _private_folder()
        self.address = str(self._folder / "script")
        self._unsent = b""
        self._is_there = False
        try:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(self.address)
            self._socket.listen(1)
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def received(self) -> bytes | None:
        """What has come; empty once the other end is closed, None where nothing has come."""
        try:
            if not self._is_there:
                self._accept()
            return self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _accept(self) -> None:
        """Raises BlockingIOError where the script has not come yet."""
        link, _ = self._socket.accept()
        self.close()
        link.setblocking(False)
        self._socket, self._is_there = link, True
        self.send(self._unsent)

    def send(self, data: bytes) -> None:
        """A script that is dead, or frozen with a full buffer, is seen by other signs."""
        if not self._is_there:
            self._unsent += data
            return
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _private_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="exactum-run-")
    if len(os.fsencode(folder)) + len("/script") > ADDRESS_BYTES_MAX:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="exactum-run-", dir=SHORT)
    return Path(folder)
