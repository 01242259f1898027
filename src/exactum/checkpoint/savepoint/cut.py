"""Which files of a checkpoint are its state after one complete epoch. Only looks; the checkpoint
may be in use.

Of Spark's: ``metadata``, ``offsets`` and ``commits`` up to epoch N, ``sources``, and each state
store at version N + 1. Of exactum's: the decisions up to N, and all small records but those of
later epochs and of runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import (
    DECISIONS,
    OWN,
    REPLAYS,
    REQUESTS,
    RETIRED,
    RUNS,
    STAGING,
)
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.query_record import IN_CHECKPOINT, record_of
from exactum.checkpoint.state_store import Ids, Vanished, stores
from exactum.errors import CheckpointRefused, ExactumError
from exactum.files.slot_log import HIGHEST_FLOOR, floor_of, slots

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_OWN_OF_EPOCH = re.compile(r"(\d{20})-[0-9a-f]{16}\.json")
"""A record of exactum's that belongs to one epoch."""
_STATE_OF_EPOCH = re.compile(r"(\d+)(?:_[0-9a-f-]{36})?")
"""Metadata or a schema of Spark's state that belongs to one epoch."""
_NOT_SAVED = (RUNS, REQUESTS, RETIRED, STAGING, REPLAYS / HIGHEST_FLOOR)


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


def last_complete(folder: Path) -> int:
    """The last epoch in Spark's commit log; -1 where there is none."""
    return max(offset_log.batches(folder / "commits"), default=-1)


def last_planned(folder: Path) -> int:
    """The last epoch in Spark's offset log; -1 where there is none."""
    return max(offset_log.batches(folder / "offsets"), default=-1)


def last_decided(folder: Path) -> int:
    """The last epoch with a recorded COMMIT; -1 where there is none, or the log lies elsewhere.

    Raises:
        CheckpointRefused: a record is damaged.
    """
    log = folder / DECISIONS
    names = (
        sorted((p.name for p in log.iterdir() if slots([p.name])), reverse=True)
        if log.is_dir()
        else []
    )
    for name in names:
        try:
            record = json.loads((log / name).read_text())
            if record["decision"] == "commit":
                return int(record["batch_id"])
        except FileNotFoundError:  # pruned meanwhile, as only old ones are
            return -1
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"The decision record {log / name} is damaged ({error}). Nothing was written.",
            ) from error
    return -1


def query_id_of(folder: Path) -> str:
    """Raises as ``QueryPlace.of``."""
    return QueryPlace.of(folder).query_id


def has_decisions(folder: Path) -> bool:
    """Whether the query records its decisions in its checkpoint. A folder of them stays there when
    ``decision_log=`` is given later: where the last run has said its place, that counts.
    """
    try:
        place = record_of(folder, query_id_of(folder)).content.decision_log
    except ExactumError:  # nobody can tell
        return False
    return place == IN_CHECKPOINT and (folder / DECISIONS).is_dir()


def past(folder: Path, batch_id: int, is_as_it_stopped: bool) -> str:
    """What of the query may stand in its targets beyond this epoch, in words; empty: nothing.

    ``is_as_it_stopped``: the query has said that it began nothing later, and none has run since.
    """
    last = max(last_complete(folder), last_decided(folder))
    if last > batch_id:
        return f"has gone on to epoch {last}"
    planned = last_planned(folder)
    if planned > batch_id and not is_as_it_stopped and not has_decisions(folder):
        return (
            f"has begun epoch {planned} (its decision log lies elsewhere, so nobody can tell from "
            "here whether that is decided)"
        )
    return ""


def replays_of(names: Iterable[str]) -> frozenset[str]:
    """Which of these paths below a checkpoint are records of replays of its dead letters."""
    return frozenset(n for n in names if Path(n).parent == REPLAYS and slots([Path(n).name]))


def cut_at(folder: Path, batch_id: int) -> Cut:
    """The files of the checkpoint ``folder`` after epoch ``batch_id``.

    Raises:
        CheckpointRefused: they are not all there, or not of a form that can be cut.
        Vanished: something disappeared while it was looked at: the query has gone on.
    """
    try:
        return _cut(folder, batch_id)
    except FileNotFoundError as error:
        raise Vanished(str(error)) from error


def _cut(folder: Path, batch_id: int) -> Cut:
    files = ["metadata", f"offsets/{batch_id}", f"commits/{batch_id}"]
    offsets = (folder / "offsets" / str(batch_id)).read_text()
    if batch_id > 0:
        files.append(f"offsets/{batch_id - 1}")
    operators: list[Operator] = []
    for path in sorted(folder.iterdir()):
        if path.name in ("metadata", "offsets", "commits") or path.name.startswith("."):
            continue
        if path.name == "state":
            for operator in sorted(
                (p for p in path.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
            ):
                ids = _state_ids(folder, operator.name, batch_id)
                found, names = _operator(
                    folder, operator, ids, batch_id, _shuffle_partitions(offsets)
                )
                operators.append(found)
                files.extend(names)
        else:
            files.extend(_plain(folder, path, batch_id if path.name == OWN.name else None))
    for name in files:
        if not (folder / name).is_file():
            raise Vanished(str(folder / name))
    return Cut(
        query_id=query_id_of(folder),
        batch_id=batch_id,
        sources=offset_log.parse(offsets, f"{folder}/offsets/{batch_id}"),
        operators=tuple(operators),
        files=tuple(sorted(set(files))),
    )


def _operator(
    folder: Path, operator: Path, ids: Ids, batch_id: int, shuffle_partitions: int
) -> tuple[Operator, list[str]]:
    """The state of one operator, and its files."""
    files: list[Path] = []
    partitions: set[int] = set()
    count = 0
    for store in stores(operator, ids):
        own = store.files(batch_id + 1)
        if own is None:
            if store.partition >= shuffle_partitions:  # of a time when there were more partitions
                continue
            raise Vanished(f"version {batch_id + 1} of the state store {store.folder}")
        files.extend(own)
        partitions.add(store.partition)
        count += 1
    size = sum(path.stat().st_size for path in files)
    for special in operator.rglob("_*"):
        if special.is_dir():
            files.extend(folder / name for name in _plain(folder, special, batch_id))
    name, known = _described(operator)
    if known and len(partitions) not in known | {shuffle_partitions}:
        raise Vanished(f"a partition of the state {operator}, of which there are {len(partitions)}")
    found = Operator(int(operator.name), name, len(partitions), count, size)
    return found, [path.relative_to(folder).as_posix() for path in files]


def _state_ids(folder: Path, operator: str, batch_id: int) -> Ids:
    """Of the versions of an operator's state up to that after ``batch_id``, as far as Spark's
    commit log reaches back: the ids of all its stores, in checkpoint format 2.

    Raises:
        CheckpointRefused: what it says of ``batch_id`` is damaged.
    """
    found: dict[int, frozenset[str]] = {}
    for done in offset_log.batches(folder / "commits"):
        if done > batch_id:
            continue
        path = folder / "commits" / str(done)
        try:
            value = json.loads(path.read_text().splitlines()[1]).get("stateUniqueIds") or {}
            if operator in value:
                found[done + 1] = frozenset(one for ids in value[operator] for one in ids)
        except FileNotFoundError:  # Spark has forgotten it meanwhile
            continue
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            if done < batch_id:  # as forgotten: a query goes on without it
                continue
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"Spark's commit log {path} cannot be read ({type(error).__name__}: {error}). It "
                "is damaged, or of a Spark that this exactum does not know. Nothing was written.",
            ) from error
    return found


def _plain(folder: Path, path: Path, batch_id: int | None) -> list[str]:
    """All files below ``path`` that are no side files; of one epoch only up to ``batch_id``, if
    that is given.
    """
    return [
        one.relative_to(folder).as_posix()
        for one in _walk(path)
        if not one.name.startswith(".")
        and not one.name.endswith(".tmp")
        and not any(one.relative_to(folder).is_relative_to(left_out) for left_out in _NOT_SAVED)
        and (batch_id is None or _epoch_of(folder, one) <= batch_id)
    ]


def _epoch_of(folder: Path, path: Path) -> int:
    """The epoch that a file belongs to; -1 for a file that belongs to none."""
    if path.parent == folder / DECISIONS:
        slot, floor = slots([path.name]), floor_of(path.name)
        # A floor f says that everything below f is pruned: it belongs to what follows f - 1.
        return slot[0][0] if slot else -1 if floor is None else floor - 1
    own = path.is_relative_to(folder / OWN)
    found = (_OWN_OF_EPOCH if own else _STATE_OF_EPOCH).fullmatch(path.name)
    return int(found[1]) if found else -1


def _described(operator: Path) -> tuple[str, set[int]]:
    """What Spark's own metadata say: its name, and in how many partitions it is or was. Empty where
    there are none.
    """
    name, partitions = "", set()
    for path in _walk(operator / "_metadata"):
        if path.name.startswith("."):
            continue
        try:
            value = json.loads(path.read_text().partition("\n")[2])
            name = str(value["operatorInfo"]["operatorName"])
            partitions |= {int(store["numPartitions"]) for store in value["stateStoreInfo"]}
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"The state's metadata {path} cannot be read ({type(error).__name__}: {error}). It "
                "is damaged, or of a Spark that this exactum does not know. Nothing was written.",
            ) from error
    return name, partitions


def _shuffle_partitions(offsets: str) -> int:
    """How many partitions the state has since this epoch; without an entry, as many as are
    found.
    """
    try:
        return int(json.loads(offsets.splitlines()[1])["conf"][SHUFFLE_PARTITIONS])
    except (ValueError, KeyError, IndexError, TypeError):
        return 1 << 31


def _walk(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for one in sorted(path.iterdir()):
            yield from _walk(one)
