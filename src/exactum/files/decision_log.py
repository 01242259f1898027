"""A decision log on a local or shared file system: one small JSON file for each record.

*Create if absent* is ``link(2)``: the content is written and fsynced under a name of its own
(``.<name>.<16 digits>.tmp``), then linked to the slot's name, which fails if the slot is taken. A
reader never sees half a record. The names, and why pruning them is safe: ``slot_log``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from exactum.durable import OF_THE_SETTING, free_bytes, make_folder, sync_folder, write_durably
from exactum.errors import OutcomeUnknown, SettingRefused, Unavailable
from exactum.files.place import TEMPORARY_AGE_S
from exactum.files.slot_log import PRUNE_EVERY, SlotLog, content_of
from exactum.protocol.model import DecisionRecord

_NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
_NO_FOLDER = OF_THE_SETTING | _NO_LINKS | {errno.EINVAL, errno.ENAMETOOLONG, errno.EEXIST}
"""What no other start mends; EINVAL is the answer of a file system that cannot fsync a folder."""
_NO_EFFECT = frozenset({errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


class FileDecisionLog(SlotLog):
    """The decisions of one query, in a folder of their own, which is made with the first record.

    ``prune_every`` is in batches. ``decide`` costs two fsyncs, one link and one listing of the
    folder.
    """

    def __init__(self, folder: Path, query_id: str, *, prune_every: int = PRUNE_EVERY) -> None:
        super().__init__(query_id, prune_every)
        self._folder = Path(folder)
        self._ready = False

    @property
    def _where(self) -> str:
        return str(self._folder)

    def _list(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed("could not be listed", error) from error

    def _bytes(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("could not be read", error) from error

    def _make_durable(self) -> None:
        self._sync_folder(Unavailable)

    # ---- deciding ----------------------------------------------------------------------------

    def _create(self, name: str, record: DecisionRecord) -> None:
        self._make_folder()
        path = self._folder / name
        temporary = self._folder / f".{name}.{secrets.token_hex(8)}.tmp"
        try:
            try:
                write_durably(temporary, content_of(record))
            except OSError as error:
                raise Unavailable(
                    f"{record.epoch}: the record {path} could not be written: {error}"
                ) from error
            try:
                os.link(temporary, path)
            except FileExistsError:
                # taken; or ours, sent twice by a network file system: the caller reads what stands
                pass
            except OSError as error:
                self._settle_link(temporary, path, error)
        finally:
            # What cannot be removed now is removed by prune, by its age.
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _settle_link(self, temporary: Path, path: Path, error: OSError) -> None:
        """A link that failed may still have been made (a lost reply). Returns if the slot is
        taken.
        """
        if error.errno in _NO_LINKS:
            raise SettingRefused(
                "LOG_HARD_LINKS",
                f"The file system of {self._folder} has no hard links ({error}), and the decision "
                "log needs them to create a record only if it is absent. Put the decision log on "
                "a local disk, on NFS, or in a database. Nothing was written.",
            ) from error
        if error.errno in _NO_EFFECT:
            raise Unavailable(
                f"The decision record {path} could not be created: {error}"
            ) from error
        try:
            if os.stat(temporary).st_nlink > 1 or path.exists():
                return
        except OSError as again:
            error = again
        raise OutcomeUnknown(
            f"The decision record {path} may or may not have been created: {error}. Start the "
            "query again: it finds out."
        ) from error

    def _standing(self, name: str, record: DecisionRecord) -> DecisionRecord | None:
        self._sync_folder(OutcomeUnknown)
        return super()._standing(name, record)

    def _make_folder(self) -> None:
        if self._ready:
            return
        try:
            make_folder(self._folder)
            sync_folder(self._folder)
        except OSError as error:
            raise self._failed("could not be made durable", error) from error
        self._ready = True

    def _failed(self, trouble: str, error: OSError) -> SettingRefused | Unavailable:
        what = f"The decision log {self._folder} {trouble}: {error}"
        if error.errno in _NO_FOLDER:
            return SettingRefused(
                "LOG_FOLDER",
                f"{what}. Choose a folder that this user may write to, on a file system that can "
                "fsync folders.",
            )
        return Unavailable(
            f"{what} ({free_bytes(self._folder.parent)}). Start the query again when it can be."
        )

    def _sync_folder(self, failure: type[Unavailable] | type[OutcomeUnknown]) -> None:
        try:
            sync_folder(self._folder)
        except OSError as error:
            raise failure(
                f"The decision log {self._folder} could not be made durable: {error}"
            ) from error

    # ---- pruning -----------------------------------------------------------------------------

    def _mark(self, marker: str) -> None:
        if not self._folder.exists():
            return
        try:
            with contextlib.suppress(FileExistsError):
                write_durably(self._folder / marker, b"")
            sync_folder(self._folder)
        except OSError as error:
            raise self._not_pruned(error) from error

    def _remove(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._not_pruned(error) from error

    def _remove_debris(self, names: Sequence[str]) -> None:
        for name in names:
            if (
                name.startswith(".")
                and name.endswith(".tmp")
                and self._age_s(name) > TEMPORARY_AGE_S
            ):
                self._remove([name])

    def _age_s(self, name: str) -> float:
        """Seconds since ``name`` was written; 0 where it is gone."""
        try:
            return time.time() - (self._folder / name).stat().st_mtime
        except FileNotFoundError:
            return 0.0
        except OSError as error:
            raise self._not_pruned(error) from error

    def _not_pruned(self, error: OSError) -> Unavailable:
        return Unavailable(f"The decision log {self._folder} could not be pruned: {error}")
