"""A checkpoint of a query without state, made by hand. Without Spark."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.query_place import place_of
from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import CheckpointRefused
from exactum.files.slot_log import SlotLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

QUERY = "0c6c5c3a-4dd2-4b0b-9e8a-111111111111"
Driver = Callable[[str], "subprocess.Popen[str]"]
"""Starts a process that holds a run's file as a driver does, and knows nothing of requests."""


def make_checkpoint(files: Storage) -> Storage:
    """Epochs 0 and 1 are complete."""
    conf = {"conf": {"spark.sql.shuffle.partitions": "2"}}
    if isinstance(files, Folder):
        files.open("offsets", "commits")
    for name, content in {
        "metadata": json.dumps({"id": QUERY}),
        **{f"offsets/{n}": f'v1\n{json.dumps(conf)}\n{{"in":{{"0":{n}}}}}' for n in (0, 1)},
        **{f"commits/{n}": 'v1\n{"nextBatchWatermarkMs":0}' for n in (0, 1)},
    }.items():
        files.put(name, content.encode())
    decide(files, 1)
    return files


def log_of(files: Storage) -> SlotLog:
    return SlotLog(files.below(DECISIONS), QUERY)


def decide(files: Storage, batch_id: int, decision: Decision = Decision.COMMIT) -> None:
    log = log_of(files)
    record = DecisionRecord(
        Epoch(QUERY, batch_id), len(log.read(batch_id)), decision, Incarnation("a" * 16)
    )
    assert log.decide(record) == record


def plan(files: Storage, batch_id: int) -> None:
    files.put(f"offsets/{batch_id}", files.read("offsets/1") or b"")


def complete(files: Storage, batch_id: int) -> None:
    plan(files, batch_id)
    files.put(f"commits/{batch_id}", files.read("commits/1") or b"")


def is_usable(place: str) -> bool:
    """Whether a query starts from it, and is not fenced there."""
    files = place_of(place)
    if files.read("metadata") is None:
        return False
    try:
        refuse_retired(files)
    except CheckpointRefused:
        return False
    log_of(files).read(2)
    return True


def is_there(place: str) -> bool:
    return bool(place_of(place).names())
