"""Records with headers for librdkafka: of whole columns, as ``rd_kafka_produceva`` reads them; and
the headers of one record, built with lengths, so that NUL in a name is a letter like any other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_void_p
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import InvariantBroken
from exactum.kafka.native import librdkafka
from exactum.kafka.native.arrow_memory import pointers
from exactum.kafka.records import record_size

_VTYPES = (
    librdkafka.VTYPE_RKT,
    librdkafka.VTYPE_PARTITION,
    librdkafka.VTYPE_VALUE,
    librdkafka.VTYPE_KEY,
    librdkafka.VTYPE_MSGFLAGS,
)
"""Of the fields that every record has, in their order."""
FIELDS_OF_A_RECORD = len(_VTYPES)
FIELDS_MAX = 10_000
"""Of records and headers, which are made ready at a time: 72 bytes for each."""


class HeaderColumn:
    """The headers of a batch's rows, for ``Producer.produce_with_headers``: none of them is null or
    lacks its key.
    """

    def __init__(self, column: pa.Array) -> None:
        self._counts = record_size.header_counts(column)
        self._begins = np.cumsum(self._counts) - self._counts
        names, values = column.flatten().flatten()
        if names.null_count:
            raise InvariantBroken("A header without a key was to be sent.")
        # C knows the end of a name by NUL. Both are kept: the addresses are into their memory.
        ended = pc.binary_join_element_wise(names.cast(pa.binary()), b"", b"\0")
        self._kept = ended, values
        self._names, _ = pointers(ended)
        self._values, self._value_sizes = pointers(values)
        self.names_hold_nul = _count_of_nul(ended) > len(names)
        """Whether C would take the beginning of a name for all of it."""

    def parts(self, rows: np.ndarray[Any, Any]) -> Iterator[slice]:
        """Slices of these rows, of which each has few enough fields to be made ready at once."""
        fields = np.cumsum(self._counts[rows] + FIELDS_OF_A_RECORD)
        begin = before = 0
        while begin < len(rows):
            end = int(np.searchsorted(fields, before + FIELDS_MAX, side="right"))
            end = max(end, begin + 1)
            yield slice(begin, end)
            begin, before = end, int(fields[end - 1])

    def of(self, rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The headers of these rows (dtype ``FIELD``), one after the other, and how many each row
        has. Valid as long as this object lives.
        """
        counts = self._counts[rows]
        before = np.cumsum(counts) - counts
        places = np.repeat(self._begins[rows] - before, counts) + np.arange(int(counts.sum()))
        fields = np.zeros(len(places), dtype=librdkafka.FIELD)
        fields["vtype"] = librdkafka.VTYPE_HEADER
        fields["first"] = self._names[places]
        # Address 0 is a null value: librdkafka knows it by that.
        fields["second"], fields["third"] = self._values[places], self._value_sizes[places]
        return fields, counts


def joined(
    topic: int,
    messages: np.ndarray[Any, Any],
    headers: np.ndarray[Any, Any],
    counts: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The fields of all messages (dtype ``MESSAGE``), each followed by its headers: the fields
    (dtype ``FIELD``), where those of each message begin, and how many they are.

    ``headers`` (dtype ``FIELD``): of all messages, one after the other; ``counts``: of each.
    """
    sizes = counts + FIELDS_OF_A_RECORD
    begins = np.cumsum(sizes) - sizes
    fields = np.zeros(int(sizes.sum()), dtype=librdkafka.FIELD)
    is_header = np.ones(len(fields), dtype=bool)
    for place, vtype in enumerate(_VTYPES):
        fields["vtype"][begins + place] = vtype
        is_header[begins + place] = False
    fields["first"][begins] = topic
    fields["i32"][begins + 1] = messages["partition"]
    fields["first"][begins + 2] = messages["payload"]
    fields["second"][begins + 2] = messages["len"]
    fields["first"][begins + 3] = messages["key"]
    fields["second"][begins + 3] = messages["key_len"]
    fields["i32"][begins + 4] = librdkafka.F_COPY
    fields[is_header] = headers
    return fields, begins, sizes


def _count_of_nul(column: pa.Array) -> int:
    """How many bytes of a column's values are 0."""
    if not len(column):
        return 0
    addresses, sizes = pointers(column)
    begin = int(addresses[0] - np.uint64(column.buffers()[2].address))
    content = np.frombuffer(column.buffers()[2], dtype=np.uint8)[begin : begin + int(sizes.sum())]
    return int(np.count_nonzero(content == 0))


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
