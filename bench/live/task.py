"""What a worker runs: an epoch's ranges in, read by its own consumers, and written as ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from unittest import mock

from exactum.spark.write import write_task
from exactum.spark.write.packed_records import Task


@dataclass(frozen=True)
class LiveTask:
    """``task`` with what the worker's own consumers read."""

    task: Task
    servers: str
    columns: tuple[str, ...]

    def __call__(self, _partition: int, given: Iterator[bytes]) -> Iterator[bytes]:
        from bench.live.reader import readers  # which starts threads of librdkafka's

        found = readers(self.servers)
        for text in given:
            ranges = [tuple(one) for one in json.loads(text)]
            # librdkafka's own thread fetches ahead: a second one of Python would only contend.
            with mock.patch.object(write_task, "Prefetch", nullcontext):
                for batch in self.task(found.batches(ranges, self.columns)):
                    for prepared in batch.column(0):
                        yield prepared.as_py().encode()
