"""Records with headers for librdkafka: of whole columns, as ``rd_kafka_produceva`` reads them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import InvariantBroken
from exactum.kafka.native import librdkafka
from exactum.kafka.native.arrow_memory import Array, pointers
from exactum.kafka.records import record_size

_VTYPES = (
    librdkafka.VTYPE_RKT,
    librdkafka.VTYPE_PARTITION,
    librdkafka.VTYPE_VALUE,
    librdkafka.VTYPE_KEY,
    librdkafka.VTYPE_MSGFLAGS,
    librdkafka.VTYPE_TIMESTAMP,
)
"""Of the fields that every record has, in their order."""
FIELDS_OF_A_RECORD = len(_VTYPES)
FIELDS_MAX = 10_000
"""Of records and headers, which are made ready at a time: 72 bytes for each."""


class HeaderColumn:
    """The headers of a batch's rows, for ``Producer.produce_with_headers``: none of them is null,
    and each has a key, without NUL in it.
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

    def parts(self, rows: Array) -> Iterator[slice]:
        """Slices of these rows, of which each has few enough fields to be made ready at once."""
        fields = np.cumsum(self._counts[rows] + FIELDS_OF_A_RECORD)
        begin = before = 0
        while begin < len(rows):
            end = int(np.searchsorted(fields, before + FIELDS_MAX, side="right"))
            end = max(end, begin + 1)
            yield slice(begin, end)
            begin, before = end, int(fields[end - 1])

    def of(self, rows: Array) -> tuple[Array, Array]:
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
    messages: Array,
    headers: Array,
    counts: Array,
    timestamps_ms: Array,
) -> tuple[Array, Array, Array]:
    """The fields of all messages (dtype ``MESSAGE``), each followed by its headers: the fields
    (dtype ``FIELD``), where those of each message begin, and how many they are.

    ``headers`` (dtype ``FIELD``): of all messages, one after the other; ``counts`` and
    ``timestamps_ms``: of each.
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
    fields["first"][begins + 5] = timestamps_ms
    fields[is_header] = headers
    return fields, begins, sizes
