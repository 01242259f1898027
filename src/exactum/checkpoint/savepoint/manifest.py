"""What a savepoint says about itself, how its files are copied, and every check that it is what it
says.

<savepoint>/manifest.json     written last; its ``digest`` covers all the rest of it
<savepoint>/checkpoint/...    the files, each with its size and SHA-256 in the manifest
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from exactum.checkpoint.savepoint.cut import Cut, Operator, cut_at
from exactum.checkpoint.state_store import Vanished
from exactum.durable import stays_below
from exactum.errors import CheckpointRefused, Unavailable
from exactum.storage.folder import Folder
from exactum.storage.storage import NewFile, Storage

FORMAT = 1
MANIFEST = "manifest.json"
CONTENT = "checkpoint"
SHOWN_MAX = 5
CHUNK_BYTES = 1 << 20
AT_ONCE = 8


@contextlib.contextmanager
def writing(place: str) -> Iterator[None]:
    """What fails on the way to ``place`` is one clear error of a command. A folder's own speaks of
    a query that is to be started again.

    Raises:
        Unavailable: no room, no right, a file where a folder should be, no answer.
    """
    try:
        yield
    except (OSError, Unavailable) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise Unavailable(
            f"{place} could not be made: {cause}. Look at the room and the rights there and "
            "repeat the command, or give another place."
        ) from error


# ---- copies --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copied:
    """One file: its path relative to what was copied, its size in bytes and its digest."""

    path: str
    size: int
    sha256: str


def copy_files(source: Storage, target: Storage, names: Sequence[str]) -> tuple[Copied, ...]:
    """Copy these files, several at a time. All is durable when it returns.

    Raises:
        Vanished: one is gone.
        OSError, Unavailable, SettingRefused: a storage failed.
    """
    folders = {above for name in names for above in _above(name)}
    target.open(*sorted(folders))

    def copy(name: str) -> Copied:
        file = target.create(name)
        try:
            copied = Copied(name, *sha256_of(source, name, file))
            file.finish()
        except FileNotFoundError as error:
            raise Vanished(name) from error
        finally:
            file.discard()
        return copied

    with ThreadPoolExecutor(AT_ONCE, "exactum-copy") as pool:
        copied = tuple(pool.map(copy, names))
    for folder in sorted(folders, reverse=True):
        target.sync(folder)
    return copied


def _above(name: str) -> Iterator[str]:
    """Every folder that it lies in, and the one that all lie in, which has no name."""
    while name:
        name = name.rpartition("/")[0]
        yield name


def sha256_of(files: Storage, name: str, copy: NewFile | None = None) -> tuple[int, str]:
    """Size in bytes, and the digest. What is read is written to ``copy``, too."""
    digest, size = hashlib.sha256(), 0
    with files.reader(name) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            if copy is not None:
                copy.write(chunk)
    return size, digest.hexdigest()


# ---- the manifest --------------------------------------------------------------------------------


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


def read_manifest(savepoint: Storage) -> Manifest:
    """
    Raises:
        CheckpointRefused: there is none, it is damaged, or a newer exactum wrote it.
    """
    text = savepoint.read(MANIFEST)
    if text is None:
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{savepoint.where} is not a savepoint: it has no {MANIFEST}. A savepoint that was not "
            "finished has none either.",
        )
    try:
        value: dict[str, Any] = json.loads(text)
        digest = value.pop("digest")
        version = int(value["format"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(
            savepoint, f"its {MANIFEST} cannot be read ({type(error).__name__}: {error})"
        ) from error
    if version > FORMAT:
        raise CheckpointRefused(
            "RECORD_VERSION",
            f"The savepoint {savepoint.where} has format {version}; this exactum reads up to "
            f"{FORMAT}. Use the exactum that made it: {value.get('exactum')}.",
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


def verify(savepoint: Storage) -> Manifest:
    """Check everything: manifest, every file's bytes, no file too many, no links, and that the
    state is whole.

    Raises:
        CheckpointRefused: something is wrong; the message says what.
    """
    manifest = read_manifest(savepoint)
    _refuse_links(savepoint)
    content = savepoint.below(CONTENT)
    with ThreadPoolExecutor(AT_ONCE, "exactum-verify") as pool:
        wrong = [text for text in pool.map(lambda f: _wrong(content, f), manifest.files) if text]
    known = {file.path for file in manifest.files}
    there = {entry.name for entry in content.entries()}
    wrong.extend(f"{name} does not belong to it" for name in sorted(there - known))
    if wrong:
        more = f" and {len(wrong) - SHOWN_MAX} more" if len(wrong) > SHOWN_MAX else ""
        raise _damaged(savepoint, "; ".join(wrong[:SHOWN_MAX]) + more)
    check_whole(savepoint, manifest.batch_id)
    return manifest


def _refuse_links(savepoint: Storage) -> None:
    if not isinstance(savepoint, Folder):
        return
    content = Path(savepoint.root) / CONTENT
    links = [p for p in (content, *content.rglob("*")) if p.is_symlink()]
    if links:
        name = min(link.relative_to(savepoint.root).as_posix() for link in links)
        raise _damaged(savepoint, f"{name} is a symbolic link, and a savepoint has none")


def check_whole(savepoint: Storage, batch_id: int) -> Cut:
    """The copied files are by themselves a checkpoint of that epoch.

    Raises:
        CheckpointRefused: they are not.
    """
    try:
        return cut_at(savepoint.below(CONTENT), batch_id)
    except Vanished as error:
        raise _damaged(savepoint, f"its state is not whole: {error}") from error


def _wrong(content: Storage, file: Copied) -> str | None:
    try:
        size, digest = sha256_of(content, file.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{file.path} is missing"
    except OSError as error:
        return f"{file.path} cannot be read ({error})"
    if size != file.size:
        return f"{file.path} has {size} instead of {file.size} bytes"
    return None if digest == file.sha256 else f"{file.path} has other bytes than it had"


def _damaged(savepoint: Storage, how: str) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_DAMAGED",
        f"The savepoint {savepoint.where} is damaged: {how}. Do not start from it; take another "
        "copy.",
    )


def _digest(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
