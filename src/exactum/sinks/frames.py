"""What is in a staged file: one line of JSON that says how its rows are to be published, then
frames of rows.

    {"format": "binary", "columns": ...}\\n
    <bytes as they are> <bytes when unpacked> <rows> <CRC-32> <the bytes, LZ4>     frame after frame

The four numbers are big-endian, of 64, 64, 32 and 32 bits. A file says itself how it goes into its
target, whatever the sink's settings are by then: a query may be started again with others while an
epoch is decided and not finished. A frame is what a target takes in one piece. Frames are packed,
because a file is written to the disk, or sent to a store, before its epoch can be decided: LZ4
takes less time than what it spares.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from exactum.storage.storage import NewFile

if TYPE_CHECKING:
    import pyarrow as pa

Frame = tuple[memoryview, int]
"""A frame as it was written, and the number of its rows."""
_FRAME = struct.Struct(">QQII")


def _codec() -> pa.Codec:
    import pyarrow as pa

    return pa.Codec("lz4")


class FrameWriter:
    """Of one task's file, which its owner finishes. ``rows`` counts what was written, and
    ``header_digest`` tells files of different headers apart.
    """

    def __init__(self, stream: NewFile, header: Mapping[str, Any]) -> None:
        self._stream = stream
        self._codec = _codec()
        self.rows = 0
        line = json.dumps(header, ensure_ascii=False).encode()
        self.header_digest = hashlib.sha256(line).hexdigest()[:16]
        stream.write(line + b"\n")

    def write(self, frame: Any, rows: int) -> None:
        """``frame`` is bytes-like."""
        import pyarrow as pa

        packed = self._codec.compress(pa.py_buffer(frame))
        unpacked = memoryview(frame).nbytes
        self._stream.write(_FRAME.pack(packed.size, unpacked, rows, zlib.crc32(packed)))
        self._stream.write(packed)
        self.rows += rows


class FrameReader:
    """Reads a file's header at once and its frames as they are asked for.

    Raises:
        ValueError: the file is damaged.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.header: dict[str, Any] = json.loads(file.readline())

    def __iter__(self) -> Iterator[Frame]:
        """(frame, rows)"""
        codec = _codec()
        while head := self._file.read(_FRAME.size):
            if len(head) != _FRAME.size:
                raise ValueError("the file ends within a frame")
            size, unpacked, rows, checksum = _FRAME.unpack(head)
            packed = self._file.read(size)
            if len(packed) != size:
                raise ValueError(f"a frame has {len(packed)} of {size} bytes")
            if zlib.crc32(packed) != checksum:
                raise ValueError("a frame has other bytes than were written")
            try:
                frame = memoryview(codec.decompress(packed, unpacked))
            except OSError as error:  # it is not the file's
                raise ValueError(f"a frame cannot be unpacked: {error}") from error
            yield frame, rows


# ---- frames in Arrow's own format ------------------------------------------------------------


def packed(batch: pa.RecordBatch) -> pa.Buffer:
    """A frame of one record batch."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def unpacked(frame: memoryview) -> pa.RecordBatch:
    """The record batch of a frame."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(frame)) as stream:
        return stream.read_next_batch()


def without(frame: memoryview, places: Sequence[int]) -> memoryview:
    """The frame without the rows at these places."""
    import numpy as np
    import pyarrow as pa

    batch = unpacked(frame)
    kept = np.ones(batch.num_rows, bool)
    kept[list(places)] = False
    return memoryview(packed(batch.filter(pa.array(kept))))
