"""What a power cut takes: from the system calls of a process and its children, the files that were
not on the disk.

strace notes every call that gives a file content or a name, and every fsync. A name or content is
safe if an fsync of the folder or of the file began after it was made. Nothing of this knows exactum
or Spark.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CONTENT = "openat,open,creat,write,pwrite64,writev,copy_file_range,sendfile,ftruncate"
NAMES = "rename,renameat,renameat2,link,linkat,mkdir,mkdirat,unlink"
CALLS = f"trace={CONTENT},{NAMES},fsync,fdatasync"
TRACE = ("strace", "-f", "-y", "-qq", "-s", "0", "--seccomp-bpf", "-e", CALLS)
_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(?:<(.*?)>)?")
_PATH = re.compile(r'"([^"]*)"')
_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")
_WRITES = ("write", "pwrite64", "writev", "ftruncate")
_COPIES = {"copy_file_range": 2, "sendfile": 0}
"""Calls that write to another descriptor: its place among those that are named."""


@dataclass(frozen=True)
class Call:
    """One that succeeded, and the lines of the trace where it began and ended."""

    name: str
    text: str
    began: int
    ended: int

    @property
    def paths(self) -> list[str]:
        return _PATH.findall(self.text)


@dataclass
class File:
    """When it was last changed, and when the fsyncs that have ended began."""

    changed: int = -1
    synced: list[int] = field(default_factory=list)

    def safe(self) -> bool:
        return any(self.changed < began for began in self.synced)


def traced(
    command: Sequence[str], folder: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """The command in this folder; what it does comes into its file ``trace``."""
    command = [*TRACE, "-o", str(folder / "trace"), *command]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=folder
    )


def calls(folder: Path) -> list[Call]:
    """All calls that succeeded, in the order in which they ended."""
    begun: dict[str, tuple[str, int]] = {}
    found: list[Call] = []
    for number, line in enumerate((folder / "trace").read_text(errors="replace").splitlines()):
        matched = _LINE.fullmatch(line)
        assert matched, line
        thread, text = matched[1], matched[2]
        if text.endswith("<unfinished ...>"):
            begun[thread] = (text.removesuffix("<unfinished ...>"), number)
            continue
        began = number
        if resumed := _RESUMED.match(text):
            before, began = begun.pop(thread)
            text = before + resumed[1]
        call = _CALL.match(text)
        if call and int(call[3]) >= 0:
            opened = f" <{call[4]}>" if call[4] else ""
            found.append(Call(call[1], call[2] + opened, began, number))
    return found


class Disk:
    """What of the files below ``root`` was on the disk, call by call."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.content: dict[str, File] = {}
        self.names: dict[str, File] = {}
        """Of each path that was made: since when it has its name, and the times that its folder
        was fsynced.
        """

    def play(self, call: Call) -> None:
        if call.name in ("openat", "open", "creat") and (
            "O_CREAT" in call.text or call.name == "creat"
        ):
            path = call.text.rpartition("<")[2].rstrip(">")
            if path not in self.content or "O_TRUNC" in call.text:
                self._made(path, File(call.ended), call.ended)
        elif call.name in _WRITES or call.name in _COPIES:
            described = _DESCRIPTOR.findall(call.text)
            place = _COPIES.get(call.name, 0)
            if len(described) > place and described[place] in self.content:
                self.content[described[place]].changed = call.ended
        elif call.name.startswith("rename"):
            old, new = call.paths
            self._made(new, self.content.pop(old, File()), call.ended)
            self.names.pop(old, None)
        elif call.name.startswith("link"):
            old, new = call.paths
            self._made(new, self.content.get(old, File()), call.ended)
        elif call.name == "unlink":
            self.content.pop(call.paths[0], None)
            self.names.pop(call.paths[0], None)
        elif call.name.startswith("mkdir"):
            self._made(call.paths[0], None, call.ended)
        elif call.name in ("fsync", "fdatasync"):
            path = _DESCRIPTOR.findall(call.text)[0]
            if path in self.content:
                self.content[path].synced.append(call.began)
            for name, made in self.names.items():
                if os.path.dirname(name) == path:
                    made.synced.append(call.began)

    def _made(self, path: str, content: File | None, at: int) -> None:
        if path == self.root or path.startswith(self.root + "/"):
            self.names[path] = File(at)
            if content is not None:
                self.content[path] = content

    def unnamed(self) -> list[str]:
        """Paths whose name is not on the disk, nor that of a folder above."""
        lost = {path for path, made in self.names.items() if not made.safe()}
        return sorted(
            path for path in self.names if any(p in lost for p in _upwards(path, self.root))
        )

    def unwritten(self) -> list[str]:
        """Files whose content is not on the disk, or not all of it."""
        return sorted(path for path, content in self.content.items() if not content.safe())


def _upwards(path: str, root: str) -> list[str]:
    found = [path]
    while found[-1] != root and len(found[-1]) > len(root):
        found.append(os.path.dirname(found[-1]))
    return found


def cut(disk: Disk) -> list[str]:
    """Take away what was not on the disk: names are gone, content is empty or half. What was
    taken.
    """
    gone = [path for path in disk.unnamed() if os.path.lexists(path)]
    for path in reversed(gone):
        if os.path.isdir(path):
            for inner in sorted(Path(path).rglob("*"), reverse=True):
                inner.rmdir() if inner.is_dir() else inner.unlink()
            os.rmdir(path)
        else:
            os.unlink(path)
    torn = [path for path in disk.unwritten() if os.path.isfile(path)]
    for number, path in enumerate(torn):
        os.truncate(path, os.path.getsize(path) // 2 if number % 2 else 0)
    return gone + torn
