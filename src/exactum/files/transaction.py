"""What a file transaction is: which files one task has staged, and where they go. It is the payload
that any process needs to finish it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.durable import stays_below
from exactum.errors import InvariantBroken
from exactum.files.place import Area, FileMove, StagedFolder
from exactum.protocol.model import Incarnation, PreparedTransaction

PAYLOAD_BYTES_MAX = 8_192
"""A longer list of files goes into a file of its own, beside them: decision records stay small."""
MANIFEST = "manifest.staged"


@dataclass(frozen=True)
class PartFile:
    """One staged file: ``folder`` is its partition folder below the place, empty where there are no
    partitions.
    """

    folder: str
    rows: int
    size: int


@dataclass(frozen=True)
class FileTransaction:
    """``files`` in the order of their numbers; None: the list is in the manifest, beside the staged
    files.

    ``where`` is the place it was written to, for messages.
    """

    staging: StagedFolder
    batch_id: int
    attempt: int
    extension: str
    where: str
    count: int
    files: tuple[PartFile, ...] | None

    @staticmethod
    def of(prepared: PreparedTransaction) -> FileTransaction:
        """Raises ``InvariantBroken`` for a payload that is not of this sink."""
        try:
            value = json.loads(prepared.payload)
            files = value.get("files")
            for name in (value["incarnation"], prepared.identity, value["extension"]):
                if "/" in name or not stays_below(name):
                    raise ValueError(f"{name!r} leads out of the sink's folder")
            return FileTransaction(
                StagedFolder(Area.STAGED, Incarnation(value["incarnation"]), prepared.identity),
                int(value["batch"]),
                int(value["attempt"]),
                str(value["extension"]),
                str(value["where"]),
                int(value["count"]),
                None if files is None else _files(files),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvariantBroken(
                f"The decision record holds a transaction {prepared.identity} of sink "
                f"{prepared.participant!r} that is not one of files ({type(error).__name__}: "
                f"{error}): {prepared.payload[:200]!r}. Was the sink of this name another one "
                "before? Start the query once more with that one, then change it."
            ) from error

    def payload(self) -> str:
        """JSON text, at most ``PAYLOAD_BYTES_MAX`` long unless ``files`` is None."""
        value: dict[str, Any] = {
            "where": self.where,
            "incarnation": self.staging.incarnation,
            "batch": self.batch_id,
            "attempt": self.attempt,
            "extension": self.extension,
            "count": self.count,
        }
        if self.files is not None:
            value["files"] = [[f.folder, f.rows, f.size] for f in self.files]
        return json.dumps(value, ensure_ascii=False)

    def moves(self, files: Sequence[PartFile]) -> list[FileMove]:
        """What a commit of ``files`` does."""
        return [
            FileMove(self.staging, staged_name(n), self.target(n, file))
            for n, file in enumerate(files)
        ]

    def target(self, number: int, file: PartFile) -> str:
        task = f"{self.batch_id:010d}-{self.attempt}-{self.staging.identity}"
        name = f"part-{task}-{number}.{self.extension}"
        return f"{file.folder}/{name}" if file.folder else name


def staged_name(number: int) -> str:
    return f"{number}.staged"


def manifest_of(files: Sequence[PartFile]) -> bytes:
    return json.dumps(
        {"files": [[f.folder, f.rows, f.size] for f in files]}, ensure_ascii=False
    ).encode()


def read_manifest(content: bytes, where: str) -> tuple[PartFile, ...]:
    """The files that a manifest lists.

    Raises:
        InvariantBroken: it is damaged.
    """
    try:
        return _files(json.loads(content)["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvariantBroken(
            f"The list of staged files {where} is damaged: {error}. Keep it and report this."
        ) from error


def sizes_of(files: Sequence[PartFile]) -> Mapping[str, int]:
    return {staged_name(n): file.size for n, file in enumerate(files)}


def _files(value: Sequence[Any]) -> tuple[PartFile, ...]:
    files = tuple(PartFile(str(folder), int(rows), int(size)) for folder, rows, size in value)
    for file in files:
        if file.folder and not stays_below(file.folder):
            raise ValueError(f"{file.folder!r} leads out of the sink's folder")
    return files
