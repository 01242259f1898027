"""Headers as librdkafka keeps them: built with lengths, so that NUL in a name is a letter like any
other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_void_p
from typing import Any

import pyarrow as pa

from exactum.errors import InvariantBroken
from exactum.kafka import librdkafka, record_size
from exactum.kafka.arrow_memory import pointers


class HeaderColumn:
    """The headers of a batch's rows, for ``Producer.produce_array``: none of them is null or lacks
    its key.
    """

    def __init__(self, column: pa.Array) -> None:
        self._c = librdkafka.library()
        self._ends = record_size.header_counts(column).cumsum().tolist()
        self._names, self._values = (
            column.flatten().flatten()
        )  # kept: the addresses are into their memory
        if self._names.null_count:
            raise InvariantBroken("A header without a key was to be sent.")
        self._cells = [
            array.tolist() for each in (self._names, self._values) for array in pointers(each)
        ]

    def of(self, row: int) -> int | None:
        """New headers of one row, which whoever asked owns; None where it has none."""
        begin, end = self._ends[row - 1] if row else 0, self._ends[row]
        if begin == end:
            return None
        names, name_sizes, values, value_sizes = self._cells
        made = self._c.rd_kafka_headers_new(end - begin)
        for place in range(begin, end):
            # Address 0 is a null value: rd_kafka_header_add() knows it by that.
            self._c.rd_kafka_header_add(
                made, names[place], name_sizes[place], values[place], value_sizes[place]
            )
        return int(made)


def made_of(headers: Sequence[tuple[str, bytes | None]]) -> int | None:
    """New headers, which the caller owns; None for none."""
    if not headers:
        return None
    library = librdkafka.library()
    made = library.rd_kafka_headers_new(len(headers))
    for name, value in headers:
        text = name.encode()
        size = 0 if value is None else len(value)
        library.rd_kafka_header_add(made, address(text), len(text), address(value), size)
    return int(made)


def address(data: bytes | None) -> Any:
    """Of bytes that outlive the call they are for."""
    return None if data is None else ctypes.cast(c_char_p(data), c_void_p)


def memory(data: bytes | None) -> librdkafka.Memory:
    """Where the bytes lie, for a call; null for None."""
    return librdkafka.Memory(address(data), 0 if data is None else len(data))
