"""A clock that only some processes go by: ``clock.c``, built with the machine's C compiler."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
SECONDS = struct.Struct("=q")


class Clock:
    """The wall clock of every process that is started with ``environment``."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clock.so"
        self.move(0)
        command = [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            str(SOURCE),
            "-o",
            str(self._library),
            "-ldl",
        ]
        subprocess.run([*command, "-lpthread"], check=True, capture_output=True, text=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def move(self, ahead_s: int) -> None:
        """So many seconds ahead of the machine's, now and in all of them."""
        if not self._file.exists():
            self._file.write_bytes(SECONDS.pack(0))
        with self._file.open("r+b") as file:  # the processes have mapped this very file
            file.write(SECONDS.pack(ahead_s))
