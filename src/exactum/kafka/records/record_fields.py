"""Arrays of records with headers, as ``rd_kafka_produceva`` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from exactum.kafka.native import librdkafka

Array = np.ndarray[Any, Any]
_VTYPES = (
    librdkafka.VTYPE_RKT,
    librdkafka.VTYPE_PARTITION,
    librdkafka.VTYPE_VALUE,
    librdkafka.VTYPE_KEY,
    librdkafka.VTYPE_MSGFLAGS,
)
"""Of the fields that every record has, in their order."""
FIELDS_OF_A_RECORD = len(_VTYPES)


def joined(
    topic: int, messages: Array, headers: Array, counts: Array
) -> tuple[Array, Array, Array]:
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
