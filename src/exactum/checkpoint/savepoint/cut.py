"""Which files of a checkpoint are its state after one complete epoch. Only looks; the checkpoint
may be in use.

Of Spark's: ``metadata``, ``offsets`` and ``commits`` up to epoch N, ``sources``, and each state
store at version N + 1. Of exactum's: the decisions up to N, and all small records but those of
later epochs and of runs.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import (
    DECISIONS,
    OWN,
    REPLAYS,
    REQUESTS,
    RESTORING,
    RETIRED,
    RUNS,
    STAGING,
)
from exactum.checkpoint.offset_log import COMMITS, OFFSETS
from exactum.checkpoint.query_place import METADATA, QueryPlace, query_id_of
from exactum.checkpoint.query_record import IN_CHECKPOINT, record_of
from exactum.checkpoint.state_store import STATE, Ids, Vanished, ids_of_version, stores
from exactum.errors import CheckpointRefused, ExactumError, InvariantBroken
from exactum.files.slot_log import HIGHEST_FLOOR, floor_of, slots
from exactum.protocol.resolve import commit_in_force
from exactum.storage.storage import Storage

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_OWN_OF_EPOCH = re.compile(r"(\d{20})-[0-9a-f]{16}\.json")
"""A record of exactum's that belongs to one epoch."""
_STATE_OF_EPOCH = re.compile(r"(\d+)(?:_[0-9a-f-]{36})?")
"""Metadata or a schema of Spark's state that belongs to one epoch."""
_OF_OPERATOR = re.compile(rf"{STATE}/(\d+)/")
_NOT_SAVED = (RUNS, REQUESTS, RETIRED, RESTORING, STAGING, f"{REPLAYS}/{HIGHEST_FLOOR}")


@dataclass(frozen=True)
class Operator:
    """The state of one stateful operator: ``stores`` in ``partitions`` partitions, ``size_bytes``
    in all.
    """

    number: int
    name: str
    partitions: int
    stores: int
    size_bytes: int


@dataclass(frozen=True)
class Cut:
    """One complete epoch of a checkpoint, and its files relative to it."""

    query_id: str
    batch_id: int
    sources: tuple[str | None, ...]
    operators: tuple[Operator, ...]
    files: tuple[str, ...]


def last_complete(files: Storage) -> int:
    """The last epoch in Spark's commit log; -1 where there is none."""
    return max(offset_log.batches(files.names, COMMITS), default=-1)


def last_planned(files: Storage) -> int:
    """The last epoch in Spark's offset log; -1 where there is none."""
    return max(offset_log.batches(files.names, OFFSETS), default=-1)


def last_decided(files: Storage) -> int:
    """The last epoch with a recorded COMMIT; -1 where there is none, or the log lies elsewhere.

    Raises:
        CheckpointRefused: a record is damaged.
    """
    for name in sorted((n for n in files.names(DECISIONS) if slots([n])), reverse=True):
        text = files.read(f"{DECISIONS}/{name}")
        if text is None:  # pruned meanwhile, as only old ones are
            return -1
        try:
            record = json.loads(text)
            if record["decision"] == "commit":
                return int(record["batch_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"The decision record {files.where}/{DECISIONS}/{name} is damaged ({error}). "
                "Nothing was written.",
            ) from error
    return -1


def has_decisions(files: Storage) -> bool:
    """Whether the query records its decisions in its checkpoint. A folder of them stays there when
    ``decision_log=`` is given later: where the last run has said its place, that counts.
    """
    try:
        place = record_of(files, query_id_of(files) or "").content.decision_log
    except ExactumError:  # nobody can tell
        return False
    return place == IN_CHECKPOINT and bool(files.names(DECISIONS))


def past(files: Storage, batch_id: int, is_as_it_stopped: bool) -> str:
    """What of the query may stand in its targets beyond this epoch, in words; empty: nothing.

    ``is_as_it_stopped``: the query has said that it began nothing later, and none has run since.
    """
    last = max(last_complete(files), last_decided(files))
    if last > batch_id:
        return f"has gone on to epoch {last}"
    planned = last_planned(files)
    if planned > batch_id and not is_as_it_stopped and not has_decisions(files):
        return (
            f"has begun epoch {planned} (no decision log lies here, so nobody can tell whether "
            "that is decided)"
        )
    return ""


def replays_of(paths: Iterable[str]) -> frozenset[str]:
    """Which of these paths below a checkpoint are records of replays of its dead letters."""
    split = ((path, *path.rpartition("/")) for path in paths)
    return frozenset(path for path, above, _, name in split if above == REPLAYS and slots([name]))


def cut_at(files: Storage, batch_id: int) -> Cut:
    """The files of a checkpoint after epoch ``batch_id``, by one listing.

    Raises:
        CheckpointRefused: they are not all there, or not of a form that can be cut.
        Vanished: something disappeared while it was looked at: the query has gone on.
    """
    sizes = {
        entry.name: entry.size
        for entry in files.entries()
        if not any(part.startswith(".") for part in entry.name.split("/"))
    }
    chosen = [METADATA, f"{OFFSETS}/{batch_id}", f"{COMMITS}/{batch_id}"]
    if batch_id > 0:
        chosen.append(f"{OFFSETS}/{batch_id - 1}")
    _refuse_lost_decision(files, batch_id)
    offsets = offset_log.reader(files.read, files.where)(f"{OFFSETS}/{batch_id}")
    if offsets is None:
        raise Vanished(f"{files.where}/{OFFSETS}/{batch_id}")
    ids = _state_ids(files, batch_id)
    # Those that have state in epoch N are named by its commit, and found here: both have to be.
    numbers = {number for number, versions in ids.items() if batch_id + 1 in versions}
    numbers |= {int(p[1]) for p in map(_OF_OPERATOR.match, sizes) if p is not None}
    operators: list[Operator] = []
    for number in sorted(numbers):
        wanted = batch_id, _partitions(offsets)
        found, paths = _operator(files, sizes, number, ids.get(number, {}), wanted)
        operators.append(found)
        chosen.extend(paths)
    for path in sizes:
        top = path.partition("/")[0]
        if top not in (METADATA, OFFSETS, COMMITS, STATE) and _is_saved(
            path, batch_id if top == OWN else None
        ):
            chosen.append(path)
    for path in chosen:
        if path not in sizes:
            raise Vanished(f"{files.where}/{path}")
    return Cut(
        query_id=query_id_of(files) or "",
        batch_id=batch_id,
        sources=offset_log.parse(offsets, f"{files.where}/{OFFSETS}/{batch_id}"),
        operators=tuple(operators),
        files=tuple(sorted(set(chosen))),
    )


def _refuse_lost_decision(files: Storage, batch_id: int) -> None:
    """Where the query's record says that this epoch is decided in its checkpoint, the log is the
    query's own, and has the COMMIT. What is pruned was there.

    Raises:
        CheckpointRefused: it is not so, or nobody can tell.
    """
    place = QueryPlace(files, query_id_of(files) or "")
    record = place.record()
    if record.decision_log != IN_CHECKPOINT:
        return
    noted = record.noted
    last = noted.last(batch_id + 1)
    with contextlib.closing(place.open_log()) as log:
        if last is None or not (noted.first or 0) <= batch_id <= last:
            return
        try:
            if commit_in_force(log.read(batch_id)) is not None:
                return
            lost = (
                f"{place} has no COMMIT of epoch {batch_id} on record, and Spark has finished it: "
                "the record is gone. Restore the checkpoint whole."
            )
        except InvariantBroken as error:
            lost = str(error)
        except CheckpointRefused as error:
            if error.code == "LOG_PRUNED":
                return
            raise
    raise CheckpointRefused("DECISION_LOG_DAMAGED", f"{lost} Nothing was written.")


def _read(files: Storage, path: str) -> bytes:
    content = files.read(path)
    if content is None:
        raise Vanished(f"{files.where}/{path}")
    return content


def _operator(
    files: Storage, sizes: Mapping[str, int], number: int, ids: Ids, wanted: tuple[int, int]
) -> tuple[Operator, list[str]]:
    """The state of one operator, and its files. ``wanted``: of which epoch, and the partitions that
    it has since.

    Raises:
        CheckpointRefused, Vanished: see ``cut_at``.
    """
    batch_id, shuffle_partitions = wanted
    folder = f"{STATE}/{number}"
    chosen: list[str] = []
    partitions: set[int] = set()
    count = 0
    for store in stores(files, folder, sizes, ids):
        own = store.of_version(batch_id + 1)
        if own is None:
            if store.partition >= shuffle_partitions:  # of a time when there were more partitions
                continue
            raise Vanished(f"a whole version {batch_id + 1} of the state store {store.folder}")
        chosen.extend(own)
        partitions.add(store.partition)
        count += 1
    size = sum(sizes.get(path, 0) for path in chosen)
    special = [
        path
        for path in sizes
        if path.startswith(f"{folder}/")
        and any(part.startswith("_") for part in path.split("/")[2:-1])
    ]
    chosen.extend(path for path in special if _is_saved(path, batch_id))
    described = [path for path in chosen if path.startswith(f"{folder}/_metadata/")]
    if not described:  # Spark writes them before the first batch of a run
        raise Vanished(f"the description of the state, {folder}/_metadata,")
    name, known = _described(files, described)
    lost = ids.get(batch_id + 1, frozenset()) - ids_of_version(batch_id + 1, chosen)
    if lost or len(partitions) not in known | {shuffle_partitions}:
        raise Vanished(f"a partition of the state {folder}, of which there are {len(partitions)}")
    return Operator(number, name, len(partitions), count, size), chosen


def _state_ids(files: Storage, batch_id: int) -> dict[int, dict[int, frozenset[str]]]:
    """By operator, of the versions of its state up to that after ``batch_id``, as far as Spark's
    commit log reaches back: the ids of all its stores. Empty in checkpoint format 1.

    Raises:
        CheckpointRefused: what it says of ``batch_id`` is damaged.
    """
    found: dict[int, dict[int, frozenset[str]]] = {}
    for done in offset_log.batches(files.names, COMMITS):
        if done > batch_id:
            continue
        path = f"{COMMITS}/{done}"
        try:
            value = json.loads(_read(files, path).splitlines()[1]).get("stateUniqueIds") or {}
            for operator, partitions in value.items():
                ids = frozenset(one for ids in partitions for one in ids)
                found.setdefault(int(operator), {})[done + 1] = ids
        except Vanished:  # Spark has forgotten it meanwhile
            continue
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            if done < batch_id:  # as forgotten: a query goes on without it
                continue
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"Spark's commit log {files.where}/{path} cannot be read ({type(error).__name__}: "
                f"{error}). It is damaged, or of a Spark that this exactum does not know. Nothing "
                "was written.",
            ) from error
    return found


def _is_saved(path: str, batch_id: int | None) -> bool:
    """Whether a file is no side file; of what belongs to single epochs only up to ``batch_id``, if
    that is given.
    """
    return (
        not path.endswith(".tmp")
        and not any(path == each or path.startswith(f"{each}/") for each in _NOT_SAVED)
        and (batch_id is None or _epoch_of(path) <= batch_id)
    )


def _epoch_of(path: str) -> int:
    """The epoch that a file belongs to; -1 for a file that belongs to none."""
    above, _, name = path.rpartition("/")
    if above == DECISIONS:
        slot, floor = slots([name]), floor_of(name)
        # A floor f says that everything below f is pruned: it belongs to what follows f - 1.
        return slot[0][0] if slot else -1 if floor is None else floor - 1
    own = path.startswith(f"{OWN}/")
    found = (_OWN_OF_EPOCH if own else _STATE_OF_EPOCH).fullmatch(name)
    return int(found[1]) if found else -1


def _described(files: Storage, paths: Iterable[str]) -> tuple[str, set[int]]:
    """What Spark's own metadata say: its name, and in how many partitions it is or was."""
    name, partitions = "", set()
    for path in sorted(paths):
        try:
            value = json.loads(_read(files, path).partition(b"\n")[2])
            name = str(value["operatorInfo"]["operatorName"])
            partitions |= {int(store["numPartitions"]) for store in value["stateStoreInfo"]}
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"The state's metadata {files.where}/{path} cannot be read "
                f"({type(error).__name__}: {error}). It is damaged, or of a Spark that this "
                "exactum does not know. Nothing was written.",
            ) from error
    return name, partitions


def _partitions(offsets: str) -> int:
    """How many partitions the state has since this epoch; without an entry, as many as are
    found.
    """
    try:
        return int(json.loads(offsets.splitlines()[1])["conf"][SHUFFLE_PARTITIONS])
    except (ValueError, KeyError, IndexError, TypeError):
        return 1 << 31
