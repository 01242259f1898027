"""A place that holds files and is seen by the driver and all tasks: a folder, or a prefix in an
object store.

    <place>/day=2026-01-01/part-0000000042-0-3-<incarnation>-<random>-0.parquet
        what readers see
    <place>/.exactum/<scope>/
        the staging of one sink of one query, see ``sinks.staging``, with its markers
    <place>/.exactum/<scope>/new
        in folders, until the first batch is there

Any number of queries may share a place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from exactum.errors import SettingRefused
from exactum.sinks.staging import HIDDEN, Staging, staging_at
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

NEW = "new"
"""In a staging, from when its folder is made until its first marker."""

OWNERS = ("_spark_metadata", "_delta_log", ".hoodie")
"""Folders whose presence makes readers trust a list of files instead of what they find."""

NAME_BYTES_MAX = 255
"""Longest name of a folder or file."""
FOLDER_BYTES_MAX = 512
"""Longest partition folder in all its levels."""
PLACE_BYTES_MAX = 400
"""Longest place: with a partition folder, and a file in it, no longer than a key of an object."""


def owned(where: str, owner: str) -> str:
    """Why a place with such a folder is refused."""
    return (
        f"FileSink({where!r}): there is {owner!r}, with which Spark's own streaming sink, Delta "
        "Lake or Hudi lists the files of this table. Their readers would not see the files of this "
        "sink. Write to another folder. Nothing was written."
    )


@contextmanager
def nobodys(place: Storage) -> Iterator[Staging]:
    """The staging of a query that nobody has; what is made of it in a place that is there is
    removed.
    """
    staging = staging_at(place, f"exactum-doctor-{uuid4()}", "exactum-doctor")
    try:
        yield staging
    finally:
        own = place.below(staging.folder)
        own.delete([entry.name for entry in own.entries()])
        if isinstance(place, Folder):
            for folder in (staging.folder, HIDDEN):
                with suppress(OSError):  # it was not made, or has the stagings of others
                    os.rmdir(os.path.join(place.root, folder))


def open_place(staging: Staging) -> None:
    """Make what is missing in its place, and check by doing it that files can be written, moved and
    removed there.

    Raises:
        SettingRefused: they cannot, or another writer's readers would not find them.
        Unavailable: the place did not answer.
    """
    place = staging.storage
    if len(place.where.encode(errors="surrogateescape")) > PLACE_BYTES_MAX:
        raise SettingRefused(
            "FILES_PATH_LONG",
            f"FileSink({place.where!r}): the place has a name of over {PLACE_BYTES_MAX} bytes, and "
            "those of files come behind it. Choose a shorter one. Nothing was written.",
        )
    for owner in OWNERS:
        if place.names(owner):
            raise SettingRefused("FILES_OWNED", owned(place.where, owner))
    # A script that removes old files leaves the folders.
    is_new = place.may_be_unmounted and staging.folder not in [
        f"{HIDDEN}/{name}" for name in place.names(HIDDEN)
    ]
    staging.open()
    if is_new:
        place.put(f"{staging.folder}/{NEW}", b"")


def is_found_below(folder: str, place: str) -> bool:
    """Whether who lists all of ``folder`` finds what lies in ``place``. Readers pass over names
    that begin with a point, or with an underscore unless they name a partition. ``s3a:`` is what
    Hadoop calls ``s3:``.
    """
    folder, place = (re.sub("^s3a:", "s3:", each) for each in (folder, place))
    if not folder or not place.startswith(folder.rstrip("/") + "/"):
        return False
    names = place[len(folder.rstrip("/")) + 1 :].split("/")
    return not any(name[:1] == "." or (name[:1] == "_" and "=" not in name) for name in names)
