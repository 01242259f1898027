"""What a process prints where it does not print itself: its streams, captured, as whole lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import IO

STDOUT, STDERR = "stdout", "stderr"
READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
"""What is longer without the end of a line is passed on in pieces."""


def pipe_if(captured: bool) -> int | None:
    """Popen's argument for a stream; one that is not captured goes where ours goes."""
    return subprocess.PIPE if captured else None


def outputs_of(process: subprocess.Popen[bytes]) -> list[Output]:
    """The captured ones of its streams."""
    return [Output(pipe) for pipe in (process.stdout, process.stderr) if pipe is not None]


class Output:
    """The reading end of a pipe that a script writes to. Never blocks."""

    def __init__(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._begun = b""
        self.ended = False

    def fileno(self) -> int:
        return self._pipe.fileno()

    def lines(self) -> list[str]:
        """Lines that are whole by now, without their ends. There may be more."""
        *whole, self._begun = (self._begun + self._read()).split(b"\n")
        if len(self._begun) > LINE_BYTES_MAX:
            whole.append(self._begun)
            self._begun = b""
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """All that is there, once nobody writes any more: also a last line without an end."""
        data = self._begun
        self._begun = b""
        while read := self._read():
            data += read
        return (
            [line.decode(errors="replace") for line in data.removesuffix(b"\n").split(b"\n")]
            if data
            else []
        )

    def close(self) -> None:
        self._pipe.close()

    def _read(self) -> bytes:
        if self.ended:
            return b""
        try:
            data = os.read(self._pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return b""
        self.ended = not data
        return data


class OutputPasser:
    """Passes on what processes print, as long as there is room for it. Where there is none, it
    stays in their pipes, and who prints more waits.
    """

    def __init__(
        self, pass_on: Callable[[Sequence[str]], None], has_room: Callable[[], bool]
    ) -> None:
        self._pass_on = pass_on
        self._has_room = has_room

    def wanted(self, outputs: Iterable[Output]) -> list[int]:
        """File descriptors that something may come from, and would be passed on now."""
        if not self._has_room():
            return []
        return [output.fileno() for output in outputs if not output.ended]

    def some(self, outputs: Iterable[Output]) -> None:
        """What is there by now."""
        for output in outputs:
            if self._has_room() and (lines := output.lines()):
                self._pass_on(lines)

    def rest(self, outputs: Iterable[Output]) -> None:
        """All that is there, once nobody writes any more."""
        for output in outputs:
            if lines := output.rest():
                self._pass_on(lines)
