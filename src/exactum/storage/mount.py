"""The file system that a folder lies on, as the kernel describes it, and what its kind and its
options mean for a query.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exactum.problem import Problem, error, ok, warning

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "gpfs"})
_IS_LOST = "A checkpoint or a decision log that is lost means rows that are lost or doubled."


def mount_of(folder: Path) -> Any:
    """psutil's partition that ``folder`` lies on; None where the system does not say. Of several on
    one point the last one counts, of nested ones the deepest.
    """
    import psutil  # not in each worker that writes files

    here = Path(os.path.realpath(folder))
    over = [m for m in psutil.disk_partitions(all=True) if here.is_relative_to(m.mountpoint)]
    return max(reversed(over), key=lambda mount: len(mount.mountpoint), default=None)


def mount_problems(where: str, folder: Path) -> Iterator[Problem]:
    """What to know of the mount that ``folder`` lies on."""
    mount = mount_of(folder)
    if mount is not None:
        yield _kind(where, mount)
        if mount.fstype.startswith("nfs") and "nocto" in mount.opts.split(","):
            yield error(
                where,
                f"{mount.mountpoint} is mounted with nocto.",
                "Then a machine may see an old state of a file that another one has just written, "
                "and a driver may miss a decision that stands.",
                "Mount it without nocto.",
            )


def _kind(where: str, mount: Any) -> Problem:
    text = f"{mount.fstype} at {mount.mountpoint} ({mount.device})"
    if mount.fstype in ("tmpfs", "ramfs"):
        return warning(
            where,
            f"{text} is memory: a restart of the machine loses it.",
            _IS_LOST,
            "Use a disk for everything that has to outlive the machine.",
        )
    if mount.fstype == "overlay":
        return warning(
            where,
            f"{text} is the writable layer of a container, which goes with the container.",
            _IS_LOST,
            "Use a volume that outlives the container.",
        )
    if mount.fstype.startswith("fuse") and mount.fstype != "fuseblk":
        return warning(
            where,
            f"{text} is a file system of a user program.",
            "Some of them (object stores mounted as folders) acknowledge what is not durable yet, "
            "and rename by copying.",
            "Give an object store by its URL (s3://...) instead of mounting it.",
        )
    seen = "other machines can see" if mount.fstype in NETWORK else "this machine alone sees"
    return ok(where, f"It lies on {text}, which {seen}.")
