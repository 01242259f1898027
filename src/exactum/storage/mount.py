"""The file system that a folder lies on, as the kernel describes it, and what its kind and its
options mean for a query.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exactum.problem import Problem, error, ok, warning

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "gpfs"})
_OCTAL = re.compile(r"\\([0-7]{3})")
_IS_LOST = "A checkpoint or a decision log that is lost means rows that are lost or doubled."


@dataclass(frozen=True)
class Mount:
    """``options``: of the mount and of the file system, name to value ("" where it has none)."""

    kind: str
    point: str
    source: str
    options: dict[str, str]

    @staticmethod
    def of_line(line: str) -> Mount:
        """One line of mountinfo: see proc(5)."""
        head, _, tail = line.partition(" - ")
        fields, kind_source = head.split(" "), tail.split(" ")
        texts = ",".join((fields[5], *kind_source[2:3]))
        pairs = (option.partition("=") for option in texts.split(",") if option)
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        options = {name: value for name, _, value in pairs}
        return Mount(kind_source[0], point, kind_source[1], options)

    @staticmethod
    def of_folder(folder: Path) -> Mount | None:
        """None where the system does not say (macOS). Of several on one point the last one counts,
        of nested ones the deepest.
        """
        try:
            lines = MOUNTS.read_text().splitlines()
        except OSError:
            return None
        here = Path(os.path.realpath(folder))
        over = [mount for mount in map(Mount.of_line, lines) if here.is_relative_to(mount.point)]
        return max(reversed(over), key=lambda mount: len(mount.point), default=None)


def mount_problems(where: str, folder: Path) -> Iterator[Problem]:
    """What to know of the mount that ``folder`` lies on."""
    mount = Mount.of_folder(folder)
    if mount is not None:
        yield _kind(where, mount)
        if mount.kind.startswith("nfs") and "nocto" in mount.options:
            yield error(
                where,
                f"{mount.point} is mounted with nocto.",
                "Then a machine may see an old state of a file that another one has just written, "
                "and a driver may miss a decision that stands.",
                "Mount it without nocto.",
            )


def _kind(where: str, mount: Mount) -> Problem:
    text = f"{mount.kind} at {mount.point} ({mount.source})"
    if mount.kind in ("tmpfs", "ramfs"):
        return warning(
            where,
            f"{text} is memory: a restart of the machine loses it.",
            _IS_LOST,
            "Use a disk for everything that has to outlive the machine.",
        )
    if mount.kind == "overlay":
        return warning(
            where,
            f"{text} is the writable layer of a container, which goes with the container.",
            _IS_LOST,
            "Use a volume that outlives the container.",
        )
    if mount.kind.startswith("fuse") and mount.kind != "fuseblk":
        return warning(
            where,
            f"{text} is a file system of a user program.",
            "Some of them (object stores mounted as folders) acknowledge what is not durable yet, "
            "and rename by copying.",
            "Give an object store by its URL (s3://...) instead of mounting it.",
        )
    seen = "other machines can see" if mount.kind in NETWORK else "this machine alone sees"
    return ok(where, f"It lies on {text}, which {seen}.")
