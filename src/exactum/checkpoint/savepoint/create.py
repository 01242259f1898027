"""Makes a savepoint: cut, copy, check, manifest. And deletes one.

[stop the query] -> N = last complete epoch -> copy what belongs to it -> check -> manifest
                          ^-- something of N disappeared meanwhile: a newer N

The files are copied to where they are to be, and they are a savepoint when the manifest is there.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from exactum._version import __version__
from exactum.checkpoint.query_place import QueryPlace, place_of
from exactum.checkpoint.request_file import Stopped, stop
from exactum.checkpoint.retirement import refuse_unfinished
from exactum.checkpoint.run_file import living, runs
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.manifest import (
    CONTENT,
    MANIFEST,
    Manifest,
    check_whole,
    copy_files,
    writing,
)
from exactum.checkpoint.state_store import Vanished
from exactum.errors import CheckpointRefused, ExactumError, Unavailable
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

STOP_TIMEOUT_S = 60.0
TRIES_MAX = 5
"""How often the query may outrun the copy before we give up."""
UNFINISHED = "unfinished"
"""Somebody makes a savepoint here, or has died over it."""


def create(
    checkpoint: str,
    to: str | Path,
    *,
    stop_query: bool = False,
    timeout_s: float = STOP_TIMEOUT_S,
) -> Manifest:
    """A savepoint of the query with this checkpoint, under the path or URL ``to``, where nothing is
    yet.

    With ``stop_query`` the query is stopped first, after the epoch at hand, for which it has
    ``timeout_s``.

    Raises:
        CheckpointRefused: no epoch is complete, one is in doubt, something is damaged or half made.
        Unavailable: the query did not stop in time, or outran the copy again and again, or ``to``
            cannot be written.
    """
    QueryPlace.of(checkpoint)  # there is a query's
    files, place = place_of(checkpoint), place_of(to)
    refuse_unfinished(files)
    _refuse_place(place, files)
    _last_complete(files)  # before it is stopped
    stopped = stop(files, timeout_s) if stop_query else Stopped(None)
    why = ""
    for _ in range(TRIES_MAX):
        running = bool(living(files))
        batch_id = _last_complete(files)
        said_so = stopped.batch_id == batch_id  # that nothing later was begun
        if not running:
            _refuse_doubt(files, batch_id, said_so)
        try:
            with writing(place.where):
                return _copy(files, place, batch_id, stopped.incarnations if said_so else None)
        except Vanished as error:
            why = str(error)
            if not running and cut.last_complete(files) == batch_id:
                raise CheckpointRefused(
                    "SAVEPOINT_DAMAGED",
                    f"The checkpoint {files.where} is damaged: {why} is missing, and epoch "
                    f"{batch_id} needs it. Nothing was written.",
                ) from error
    raise Unavailable(
        f"The query of checkpoint {files.where} went on faster than its files could be copied, "
        f"{TRIES_MAX} times (at last {why} was gone). Stop it for the savepoint (--stop), or raise "
        "spark.sql.streaming.minBatchesToRetain."
    )


def _last_complete(files: Storage) -> int:
    batch_id = cut.last_complete(files)
    if batch_id < 0:
        raise CheckpointRefused(
            "SAVEPOINT_TOO_EARLY",
            f"The query of checkpoint {files.where} has not completed an epoch yet, so there is "
            "nothing to save. Wait until it has. Nothing was written, and nothing was stopped.",
        )
    return batch_id


def _refuse_place(place: Storage, checkpoint: Storage) -> None:
    if place.names():
        raise _exists(place)
    inner, outer = (each.where.replace("s3a:", "s3:", 1) for each in (place, checkpoint))
    if f"{inner}/".startswith(f"{outer}/"):
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{place.where} lies within the checkpoint {checkpoint.where}. Keep savepoints "
            "elsewhere. Nothing was written.",
        )


def _exists(place: Storage) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_PLACE",
        f"{place.where} exists already. Give a path that does not; what a killed command has left "
        "is removed by 'exactum savepoint delete'. Nothing was written.",
    )


def _refuse_doubt(files: Storage, batch_id: int, is_as_it_stopped: bool) -> None:
    """Of a query that does not run. See ``cut.past``.

    Raises:
        CheckpointRefused: an epoch after ``batch_id``, the last complete one, may be decided.
    """
    past = cut.past(files, batch_id, is_as_it_stopped)
    if past:
        raise CheckpointRefused(
            "SAVEPOINT_TOO_EARLY",
            f"The query of checkpoint {files.where} {past}, and Spark's commit log has only epoch "
            f"{batch_id}: its driver died in between, or was stopped before its first epoch was "
            "complete. Start the query, wait for one, and stop it again (--stop). Nothing was "
            "written.",
        )


def _copy(
    files: Storage, place: Storage, batch_id: int, incarnations: tuple[str, ...] | None
) -> Manifest:
    chosen = cut.cut_at(files, batch_id)
    if isinstance(place, Folder):
        place.open()
    if not place.create_if_absent(UNFINISHED, secrets.token_bytes(16)):
        raise _exists(place)
    if MANIFEST in place.names():  # of another command, which began before this one and has ended
        place.delete([UNFINISHED])
        raise _exists(place)
    try:
        copied = copy_files(files, place.below(CONTENT), chosen.files)
        whole = check_whole(place, batch_id)
        ran = runs(files)
        manifest = Manifest(
            id=secrets.token_hex(16),
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            exactum=__version__,
            spark=ran[-1][0].spark if ran else "",
            query_id=whole.query_id,
            batch_id=batch_id,
            checkpoint=files.where,
            host=socket.gethostname(),
            decision_log="checkpoint" if cut.has_decisions(files) else "elsewhere",
            sources=whole.sources,
            operators=whole.operators,
            files=copied,
            incarnations=incarnations,
        )
        place.put(MANIFEST, manifest.to_bytes())
        place.delete([UNFINISHED])
    except BaseException:
        with suppress(ExactumError):
            place.remove()
        raise
    return manifest


def delete(savepoint: str | Path) -> None:
    """Delete a savepoint, a damaged or an unfinished one too. First its manifest goes: half a
    savepoint is never taken for one.

    Raises:
        CheckpointRefused: it is no savepoint, or holds other files besides.
    """
    place = place_of(savepoint)
    names, half = place.names(), (f".{UNFINISHED}.", f".{MANIFEST}.")  # killed as it wrote one
    there = {UNFINISHED if name.startswith(half) else name for name in names}
    if not there & {MANIFEST, UNFINISHED} or not there <= {MANIFEST, CONTENT, UNFINISHED}:
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{place.where} is not a savepoint: a folder with {MANIFEST} and {CONTENT}/ and "
            "nothing else. Nothing was deleted.",
        )
    place.put(UNFINISHED, b"")
    place.delete([MANIFEST])
    place.sync()
    place.remove()
