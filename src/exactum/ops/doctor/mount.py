"""The file system that a folder lies on, as the kernel tells it, and what its kind and its options
mean for a query.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exactum.ops.problem import Problem, error, ok, warning

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "gpfs"})
VOLATILE = frozenset({"tmpfs", "ramfs"})
STALE_MAX_S = 60
"""How long NFS may go by attributes that it has read before, by default."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """``options``: of the mount and of the file system, name to value ("" where it has none)."""

    kind: str
    point: str
    source: str
    options: dict[str, str]


def mount_of(folder: Path) -> Mount | None:
    """The mount that ``folder`` lies on; None where the system does not tell (macOS)."""
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return None
    here = os.path.realpath(folder)
    found: Mount | None = None
    for line in lines:
        one = read_line(line)
        # of several on one point the last one is seen; of nested ones the deepest
        if _below(here, one.point) and (found is None or len(one.point) >= len(found.point)):
            found = one
    return found


def read_line(line: str) -> Mount:
    """One line of mountinfo: see proc(5)."""
    head, _, tail = line.partition(" - ")
    fields, kind_source = head.split(" "), tail.split(" ")
    options: dict[str, str] = {}
    for text in (fields[5], kind_source[2] if len(kind_source) > 2 else ""):
        for option in filter(None, text.split(",")):
            name, _, value = option.partition("=")
            options[name] = value
    point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
    return Mount(kind_source[0], point, kind_source[1], options)


def _below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def mount_findings(area: str, mount: Mount) -> Iterator[Problem]:
    """What to know of it; ok where that is only its kind."""
    where = f"{mount.kind} at {mount.point} ({mount.source})"
    if "ro" in mount.options:
        yield error(area, f"{where} is mounted read-only.", "", "Mount it for writing.")
        return
    if mount.kind in VOLATILE:
        yield warning(
            area,
            f"{where} is memory: a restart of the machine loses it.",
            "A checkpoint or a decision log that is lost means rows that are lost or doubled.",
            "Use a disk for everything that has to outlive the machine.",
        )
    elif mount.kind == "overlay":
        yield warning(
            area,
            f"{where} is the writable layer of a container, which goes with the container.",
            "A checkpoint or a decision log that is lost means rows that are lost or doubled.",
            "Use a volume that outlives the container.",
        )
    elif mount.kind.startswith("fuse") and mount.kind != "fuseblk":
        yield warning(
            area,
            f"{where} is a file system of a user program.",
            "Some of them (object stores mounted as folders) acknowledge what is not durable yet, "
            "and rename by copying.",
            "Give an object store by its URL (s3://...) instead of mounting it.",
        )
    elif mount.kind in NETWORK:
        yield ok(area, f"It lies on {where}, which other machines can see.")
    else:
        yield ok(area, f"It lies on {where}, which this machine alone sees.")
    yield from _network_options(area, mount)


def _network_options(area: str, mount: Mount) -> Iterator[Problem]:
    if not mount.kind.startswith("nfs"):
        return
    if "nocto" in mount.options:
        yield error(
            area,
            f"{mount.point} is mounted with nocto.",
            "Then a machine may see an old state of a file that another one has just written, and "
            "a driver may miss a decision that stands.",
            "Mount it without nocto.",
        )
    for name in ("actimeo", "acregmax", "acdirmax"):
        if mount.options.get(name, "").isdigit() and int(mount.options[name]) > STALE_MAX_S:
            yield warning(
                area,
                f"{mount.point} is mounted with {name}={mount.options[name]}.",
                "So many seconds a machine may not see a file that another one has made.",
                f"Mount it with {name} of at most {STALE_MAX_S}, or leave it out.",
            )
    if "soft" in mount.options or "softerr" in mount.options:
        yield warning(
            area,
            f"{mount.point} is mounted soft.",
            "A server that is slow then fails writes, and the query stops where a hard mount "
            "would wait.",
            "Mount it hard.",
        )
    if mount.options.get("local_lock", "none") != "none" or "nolock" in mount.options:
        yield warning(
            area,
            f"{mount.point} is mounted with locks of this machine alone.",
            "Commands on another machine do not see that a query runs.",
            "Mount it without nolock and local_lock.",
        )
