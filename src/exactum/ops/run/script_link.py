"""The supervisor's end of the channel to a script. Nothing here blocks."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path

from exactum.spark.supervised.supervisor_channel import address_of

READ_BYTES = 1 << 16


class ScriptLink:
    """To a script that inherits the other end. ``address`` is what its environment says of it,
    ``passed`` the files that it has to inherit.
    """

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._theirs.set_inheritable(True)
        self.address = address_of(self._theirs)
        self.passed: tuple[int, ...] = (self._theirs.fileno(),)

    def started(self) -> None:
        """The script has been started, or could not be."""
        self._theirs.close()

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def received(self) -> bytes | None:
        """What has come; empty once the other end is closed, None where nothing has come."""
        try:
            return self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        """A script that is dead, or frozen with a full buffer, is seen by other signs."""
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


class NamedScriptLink(ScriptLink):
    """To a script that connects to it: spark-submit's JVM, its parent, passes no socket on.

    The socket lies in a folder that only this user can enter, and is gone once the script has come:
    nobody else takes part. What is sent before that waits.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="exactum-run-"))
        self.address = str(self._folder / "script")
        self.passed = ()
        self._unsent = b""
        self._is_there = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.address)
        self._socket.listen(1)
        self._socket.setblocking(False)

    def started(self) -> None:
        """See the base class."""

    def received(self) -> bytes | None:
        """See the base class."""
        if not self._is_there:
            try:
                link, _ = self._socket.accept()
            except BlockingIOError:
                return None
            self.close()
            link.setblocking(False)
            self._socket, self._is_there = link, True
            super().send(self._unsent)
        return super().received()

    def send(self, data: bytes) -> None:
        """See the base class."""
        if self._is_there:
            super().send(data)
        else:
            self._unsent += data

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)
