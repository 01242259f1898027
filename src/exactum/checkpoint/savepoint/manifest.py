"""What a savepoint says about itself, and every check that it is what it says.

<savepoint>/manifest.json     written last; its ``digest`` covers all the rest of it
<savepoint>/checkpoint/...    the files, each with its size and SHA-256 in the manifest
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from exactum.checkpoint.savepoint.copies import Copied, sha256_of
from exactum.checkpoint.savepoint.cut import Cut, Operator, cut_at
from exactum.checkpoint.state_store import Vanished
from exactum.durable import stays_below
from exactum.errors import CheckpointRefused

FORMAT = 1
MANIFEST = "manifest.json"
CONTENT = "checkpoint"
SHOWN_MAX = 5


@dataclass(frozen=True)
class Manifest:
    """A savepoint, in words. ``checkpoint`` and ``host`` are where it was made; ``decision_log`` is
    "checkpoint" where the decisions are in the savepoint, else "elsewhere"; ``spark`` is empty
    where no run has left its version. ``incarnations`` are the runs that were on file when the
    query was stopped and said that it had begun nothing after this epoch; None: it did not say so.
    """

    id: str
    created_at: str
    exactum: str
    spark: str
    query_id: str
    batch_id: int
    checkpoint: str
    host: str
    decision_log: str
    sources: tuple[str | None, ...]
    operators: tuple[Operator, ...]
    files: tuple[Copied, ...]
    incarnations: tuple[str, ...] | None

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        value = {"format": FORMAT, **asdict(self)}
        return (json.dumps({**value, "digest": _digest(value)}, indent=1) + "\n").encode()


def read_manifest(savepoint: Path) -> Manifest:
    """
    Raises:
        CheckpointRefused: there is none, it is damaged, or a newer exactum wrote it.
    """
    path = savepoint / MANIFEST
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
        digest = value.pop("digest")
        version = int(value["format"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{savepoint} is not a savepoint: it has no {MANIFEST}. A savepoint that was not "
            "finished has none either.",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(
            savepoint, f"its {MANIFEST} cannot be read ({type(error).__name__}: {error})"
        ) from error
    if version > FORMAT:
        raise CheckpointRefused(
            "RECORD_VERSION",
            f"The savepoint {savepoint} has format {version}; this exactum reads up to {FORMAT}. "
            f"Use the exactum that made it: {value.get('exactum')}.",
        )
    if digest != _digest(value):
        raise _damaged(savepoint, f"its {MANIFEST} was changed")
    del value["format"]
    outside = [each["path"] for each in value["files"] if not stays_below(str(each["path"]))]
    if outside:
        raise _damaged(
            savepoint,
            f"its {MANIFEST} names a file outside of it, {outside[0]!r}: somebody changed it",
        )
    return msgspec.convert(value, Manifest)


def verify(savepoint: Path) -> Manifest:
    """Check everything: manifest, every file's bytes, no file too many, no links, and that the
    state is whole.

    Raises:
        CheckpointRefused: something is wrong; the message says what.
    """
    manifest = read_manifest(savepoint)
    content = savepoint / CONTENT
    links = [
        p.relative_to(savepoint).as_posix()
        for p in (content, *content.rglob("*"))
        if p.is_symlink()
    ]
    if links:
        raise _damaged(
            savepoint, f"{sorted(links)[0]} is a symbolic link, and a savepoint has none"
        )
    wrong = [text for file in manifest.files if (text := _wrong(content, file))]
    known = {file.path for file in manifest.files}
    there = {p.relative_to(content).as_posix() for p in content.rglob("*") if not p.is_dir()}
    wrong.extend(f"{name} does not belong to it" for name in sorted(there - known))
    if wrong:
        more = f" and {len(wrong) - SHOWN_MAX} more" if len(wrong) > SHOWN_MAX else ""
        raise _damaged(savepoint, "; ".join(wrong[:SHOWN_MAX]) + more)
    check_whole(savepoint, manifest.batch_id)
    return manifest


def check_whole(savepoint: Path, batch_id: int) -> Cut:
    """The copied files are by themselves a checkpoint of that epoch.

    Raises:
        CheckpointRefused: they are not.
    """
    try:
        return cut_at(savepoint / CONTENT, batch_id)
    except Vanished as error:
        raise _damaged(savepoint, f"its state is not whole: {error}") from error


def _wrong(content: Path, file: Copied) -> str | None:
    try:
        size, digest = sha256_of(content / file.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{file.path} is missing"
    except OSError as error:
        return f"{file.path} cannot be read ({error})"
    if size != file.size:
        return f"{file.path} has {size} instead of {file.size} bytes"
    return None if digest == file.sha256 else f"{file.path} has other bytes than it had"


def _damaged(savepoint: Path, how: str) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_DAMAGED",
        f"The savepoint {savepoint} is damaged: {how}. Do not start from it; take another copy.",
    )


def _digest(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
