"""What the guard of partitions concludes from the offsets of a batch alone, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import CheckpointRefused
from exactum.protocol.model import SourceOffsets
from exactum.spark.epoch_listener import Batch
from exactum.spark.source.partition_guard import PartitionGuard
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.record import SourceRecord


def batch(batch_id: int, begins: dict[str, Any], ends: dict[str, Any]) -> Batch:
    offsets = SourceOffsets((json.dumps(begins),), (json.dumps(ends),))
    return Batch(batch_id, offsets, first=batch_id == 0)


def test_a_topic_that_is_away_for_one_batch(tmp_path: Path) -> None:
    """A broker leaves a topic of a pattern out of its list once: Spark forgets how far it was, and
    would read it from its first record in the next batch. Nobody asked the cluster in between.
    """
    options = {"subscribePattern": "t.*", "failOnDataLoss": "false"}
    source = RunningSource(0, 0, "kafkatable", options, "sources/0")
    query: Any = "query q"
    guard = PartitionGuard(query, [(source, SourceRecord(tmp_path / "0"))])
    guard.begin(batch(0, {"t1": {"0": 1}, "t2": {"0": 4}}, {"t1": {"0": 3}, "t2": {"0": 7}}))
    guard.begin(batch(1, {"t1": {"0": 3}, "t2": {"0": 7}}, {"t1": {"0": 5}}))
    with pytest.raises(CheckpointRefused, match="it has read t2-0 up to 7, then went on without"):
        guard.begin(batch(2, {"t1": {"0": 5}}, {"t1": {"0": 6}, "t2": {"0": 9}}))
