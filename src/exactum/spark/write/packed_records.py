"""Unpacks what ``RecordPacker.java`` has packed: one array of bytes for many Kafka records becomes
an Arrow record batch, whose arrays are slices of those bytes.

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused

if TYPE_CHECKING:
    import pyarrow as pa

KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = range(8)
"""The columns of Spark's Kafka source, as ``KafkaRecords.java`` numbers them."""

LAYOUT = 2
"""As ``RecordPacker.java`` numbers the layout that is read here."""
OTHER_JAR = (
    "The records of Kafka were packed by another version of columnar-kafka.jar than this "
    "exactum's, and cannot be read; nothing of them was written. Give the executors the jar that "
    "exactum.local.columnar_kafka_jar() names, or set "
    "spark.exactum.columnarKafka.packed.enabled=false."
)

Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class Layout:
    """Which columns are packed, in order; and of each column of the frame which one it is of these,
    whether as text, and its name. ``time_zone`` is the session's, as Arrow's instants have it.
    """

    packed: tuple[int, ...]
    columns: tuple[tuple[int, bool, str], ...]
    time_zone: str

    @staticmethod
    def of(text: str, time_zone: str) -> Layout:
        """``text``: as ``PackedBatches.java`` says it."""
        packed, *lines = text.split("\n")
        columns = [line.split(" ", 2) for line in lines]
        return Layout(
            tuple(map(int, packed.split())),
            tuple((int(number), how == "text", name) for number, how, name in columns),
            time_zone,
        )


@dataclass(frozen=True)
class UnpackedTask:
    """What a task does that is given packed records: ``task`` with the Arrow record batches that
    they are, and out come the texts that it returns.
    """

    task: Task
    layout: Layout

    def __call__(self, _partition: int, arrays: Iterator[bytes]) -> Iterator[bytes]:
        return texts_of(self.task(unpacked(array, self.layout) for array in arrays))


def texts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """What a task of the write job returns in Arrow batches, for a job that takes texts."""
    for batch in batches:
        for text in batch.column(0):
            yield text.as_py().encode()


def unpacked(array: bytes, layout: Layout) -> pa.RecordBatch:
    """An Arrow record batch, whose columns lie in ``array``.

    Raises:
        SettingRefused: another jar than this exactum's has packed it.
    """
    import pyarrow as pa

    buffer = pa.py_buffer(array)
    number, count = unpack_from("<ii", buffer)
    if number != LAYOUT:
        raise SettingRefused("JAR_DIFFERS", OTHER_JAR)
    reader = _Reader(buffer, count)
    arrays = {number: reader.column(number, layout.time_zone) for number in layout.packed}
    if reader.place != len(array):
        raise SettingRefused("JAR_DIFFERS", OTHER_JAR)
    return pa.RecordBatch.from_arrays(
        [
            arrays[number].view(pa.string()) if text else arrays[number]
            for number, text, _ in layout.columns
        ],
        names=[name for _, _, name in layout.columns],
    )


class _Reader:
    """Reads one column after the other, without a copy. Everything begins at a multiple of
    eight.
    """

    def __init__(self, buffer: Any, count: int) -> None:
        self._buffer = buffer
        self._count = count
        self.place = 8
        """Where the next column begins."""

    def column(self, number: int, time_zone: str) -> Any:
        import pyarrow as pa

        if number in (KEY, VALUE):
            return self._binary(self._count)
        if number == HEADERS:
            return self._headers()
        if number == TOPIC:
            return self._repeated(pa.scalar(self._take(self._long()).to_pybytes().decode()))
        if number == PARTITION:
            return self._repeated(pa.scalar(self._long(), pa.int32()))
        if number == TIMESTAMP_TYPE:
            return self._numbers(pa.int32(), 4)
        return self._numbers(pa.int64() if number == OFFSET else pa.timestamp("us", time_zone), 8)

    def _binary(self, count: int) -> Any:
        import pyarrow as pa

        parts = self._lists(count)
        if parts is None:
            return pa.nulls(count, pa.binary())
        nulls, buffers, size = parts
        return pa.Array.from_buffers(pa.binary(), count, [*buffers, self._take(size)], nulls)

    def _headers(self) -> Any:
        import pyarrow as pa

        kind = pa.list_(
            pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
        parts = self._lists(self._count)
        if parts is None:
            return pa.nulls(self._count, kind)
        nulls, buffers, cells = parts
        columns = [self._binary(cells).view(pa.string()), self._binary(cells)]
        structs = pa.Array.from_buffers(kind.value_type, cells, [None], 0, children=columns)
        return pa.Array.from_buffers(kind, self._count, buffers, nulls, children=[structs])

    def _lists(self, count: int) -> tuple[int, list[Any], int] | None:
        """The number of nulls, validity and offsets, and where the last list ends; None: all are
        null.
        """
        nulls = self._long()
        if nulls == count:
            return None
        valid = self._take((count + 7) // 8) if nulls else None
        offsets = self._take(4 * (count + 1))
        (end,) = unpack_from("<i", offsets, 4 * count)
        return nulls, [valid, offsets], end

    def _repeated(self, scalar: Any) -> Any:
        import pyarrow as pa

        return pa.repeat(scalar, self._count)

    def _numbers(self, kind: Any, width: int) -> Any:
        import pyarrow as pa

        return pa.Array.from_buffers(kind, self._count, [None, self._take(width * self._count)], 0)

    def _long(self) -> int:
        (number,) = unpack_from("<q", self._buffer, self.place)
        self.place += 8
        return int(number)

    def _take(self, size: int) -> Any:
        taken = self._buffer.slice(self.place, size)
        self.place += -(-size // 8) * 8
        return taken
