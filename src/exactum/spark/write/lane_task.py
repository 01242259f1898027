"""What a worker runs that reads Kafka by itself: ranges in, their records through the query's
function, and into the sinks as ever (docs/adr/0026).

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exactum.errors import FrameRefused
from exactum.spark.write.failure import TaskFailed
from exactum.spark.write.packed_records import KEY, OFFSET, PARTITION, TOPIC, VALUE, Task, texts_of
from exactum.spark.write.write_task import current_task

if TYPE_CHECKING:
    from exactum.kafka.consumer.consumed import Consumed
    from exactum.kafka.consumer.topic_consumer import RangeRead
    from exactum.kafka.settings.settings import Settings


@dataclass(frozen=True)
class Share:
    """What one task reads of a topic; ``ranges`` are (partition, first offset, offset before which
    it ends).
    """

    topic: str
    topic_id: str | None
    ranges: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class TopicRead:
    """What came of a range: see ``topic_consumer.RangeRead``."""

    topic: str
    partition: int
    records: int
    first_missing: int | None


@dataclass(frozen=True)
class MapFunction:
    """A query's function of Arrow batches: pickled as PySpark does, with its return type; and what
    it returns, as an Arrow schema.
    """

    pickled: bytes = field(repr=False)
    schema: Any


@dataclass(frozen=True)
class LaneTask:
    """``task`` with what this process's own consumers read.

    ``columns``: the number of each, as ``packed_records`` has them, and its name. ``settings`` are
    librdkafka's.
    """

    task: Task
    settings: Settings = field(repr=False)
    columns: tuple[tuple[int, str], ...]
    timeout_s: float
    function: MapFunction | None = None

    def __call__(self, _partition: int, given: Iterator[bytes]) -> Iterator[bytes]:
        for text in given:
            reads: list[tuple[str, list[RangeRead]]] = []
            batches = self._batches(shares_of(text), reads)
            try:
                mapped = batches if self.function is None else mapped_by(self.function, batches)
                yield from texts_of(self.task(mapped))
            except BaseException:
                with suppress(ValueError):  # see _end: what was raised says more
                    batches.close()
                raise
            _end(batches)
            yield reads_text(reads)

    def _batches(
        self, shares: list[Share], reads: list[tuple[str, list[RangeRead]]]
    ) -> Generator[Any, None, None]:
        from exactum.kafka.consumer.kept_consumers import kept_consumers  # which loads librdkafka
        from exactum.kafka.consumer.topic_consumer import Range

        for share in shares:
            consumer = kept_consumers.of(share.topic, share.topic_id, self.settings)
            ranges = [Range(*one) for one in share.ranges]
            of_topic: list[RangeRead] = []
            reads.append((share.topic, of_topic))
            shape = _shape(share.topic, self.columns)
            yield from consumer.read(ranges, shape, self.timeout_s, of_topic)


def _end(batches: Generator[Any, None, None]) -> None:
    """
    Raises:
        TaskFailed: somebody else is reading them.
    """
    try:
        batches.close()
    except ValueError:  # "generator already executing"
        refusal = FrameRefused(
            "The function of arrow_kafka has ended while a thread of its own still reads its "
            "records. Let it end that thread first. Nothing was written."
        )
        raise TaskFailed.of(refusal, current_task()) from None


def share_text(shares: list[Share]) -> bytes:
    """What a task is given."""
    return json.dumps([[one.topic, one.topic_id, one.ranges] for one in shares]).encode()


def shares_of(text: bytes) -> list[Share]:
    return [
        Share(topic, topic_id, tuple((p, first, until) for p, first, until in ranges))
        for topic, topic_id, ranges in json.loads(text)
    ]


_READS = "reads"


def reads_text(reads: list[tuple[str, list[RangeRead]]]) -> bytes:
    """What a task returns last."""
    cells = [
        [topic, one.partition, one.records, one.first_missing]
        for topic, of_topic in reads
        for one in of_topic
    ]
    return json.dumps({_READS: cells}).encode()


def reads_of(text: str) -> list[TopicRead] | None:
    """None: the text is of something else."""
    if not text.startswith(f'{{"{_READS}"'):
        return None
    return [TopicRead(*cells) for cells in json.loads(text)[_READS]]


def _shape(topic: str, columns: tuple[tuple[int, str], ...]) -> Callable[[int, Consumed], Any]:
    import pyarrow as pa

    names = [name for _, name in columns]
    name = pa.scalar(topic)

    def shaped(partition: int, records: Consumed) -> Any:
        count = len(records)
        made: dict[int, Callable[[], Any]] = {
            KEY: records.keys,
            VALUE: records.values,
            TOPIC: lambda: pa.repeat(name, count),
            PARTITION: lambda: pa.repeat(pa.scalar(partition, pa.int32()), count),
            OFFSET: lambda: pa.Array.from_buffers(
                pa.int64(), count, [None, pa.py_buffer(records.offsets)], 0
            ),
        }
        return pa.RecordBatch.from_arrays([made[number]() for number, _ in columns], names=names)

    return shaped


def mapped_by(function: MapFunction, batches: Iterator[Any]) -> Iterator[Any]:
    """What the function makes of the batches, as Spark would hand it on.

    Raises:
        FrameRefused: it returns something else than its schema says.
        Exception: what the function raises; and what ``batches`` raise, whatever the function makes
            of it: records that did not come are not for it to pass over.
    """
    import pyarrow as pa

    failed: list[Exception] = []
    try:
        # Anew for each task, as Spark does it: what one task leaves in a closure is not the next
        # one's.
        made = pickle.loads(function.pickled)[0](_noting(batches, failed))
        if not isinstance(made, Iterable):
            raise FrameRefused(
                "The function of arrow_kafka must return an iterator of Arrow record batches, and "
                f"has returned {type(made).__name__}. Nothing was written."
            )
        for batch in made:
            if not isinstance(batch, pa.RecordBatch):
                raise FrameRefused(
                    "The function of arrow_kafka must return Arrow record batches, and has "
                    f"returned {type(batch).__name__}. Nothing was written."
                )
            yield as_declared(batch, function.schema)
    except Exception:
        if failed:
            raise failed[0] from None
        raise
    if failed:
        raise failed[0]


def _noting(batches: Iterator[Any], failed: list[Exception]) -> Iterator[Any]:
    try:
        yield from batches
    except Exception as error:
        failed.append(error)
        raise


def as_declared(batch: Any, schema: Any) -> Any:
    """The batch with the names and types of ``schema``; columns are taken by their places, as Spark
    does.

    Raises:
        FrameRefused: the types are others.
    """
    import pyarrow as pa

    found = batch.schema.types
    if len(found) != len(schema) or not all(map(_is_same, found, schema.types)):
        raise FrameRefused(
            f"The function of arrow_kafka has returned columns of {', '.join(map(str, found))}; "
            f"its schema= says {', '.join(map(str, schema.types))}. Correct one of them. Nothing "
            "was written."
        )
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(batch.columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_same(found: Any, declared: Any) -> bool:
    """Whether Spark takes the one for the other."""
    import pyarrow as pa

    kinds = pa.types
    if found == declared or kinds.is_null(found):
        return True
    if kinds.is_string(declared) or kinds.is_binary(declared):
        large = kinds.is_large_string if kinds.is_string(declared) else kinds.is_large_binary
        return bool(large(found))
    if kinds.is_timestamp(declared) and kinds.is_timestamp(found):
        return found.unit == declared.unit and bool(found.tz) == bool(declared.tz)
    if kinds.is_list(declared) and kinds.is_list(found):
        return _is_same(found.value_type, declared.value_type)
    if kinds.is_struct(declared) and kinds.is_struct(found):
        fields = [(one.name, one.type) for one in found], [(one.name, one.type) for one in declared]
        return len(fields[0]) == len(fields[1]) and all(
            name == other and _is_same(kind, wanted)
            for (name, kind), (other, wanted) in zip(*fields, strict=True)
        )
    if kinds.is_map(declared) and kinds.is_map(found):
        return _is_same(found.key_type, declared.key_type) and _is_same(
            found.item_type, declared.item_type
        )
    return False
