"""librdkafka's public C interface, as much of it as exactum calls, declared for ctypes.

The library is the one that the confluent-kafka wheel carries; its symbols are reached through that
package's extension module, wherever the wheel put it. Every function is part of librdkafka's stable
interface since 1.6 (``rdkafka.h``).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

import numpy as np

from exactum.errors import SettingRefused

PARTITION_UNASSIGNED = -1
MESSAGE = np.dtype(
    [
        ("err", "<i4"),
        ("_pad0", "<i4"),
        ("topic", "<u8"),
        ("partition", "<i4"),
        ("_pad1", "<i4"),
        ("payload", "<u8"),
        ("len", "<u8"),
        ("key", "<u8"),
        ("key_len", "<u8"),
        ("offset", "<i8"),
        ("private", "<u8"),
    ]
)
"""``rd_kafka_message_t`` on a 64-bit machine (rdkafka.h)."""

FIELD = np.dtype(
    {
        "names": ["vtype", "i32", "first", "second", "third"],
        "formats": ["<i4", "<i4", "<u8", "<u8", "<i8"],
        "offsets": [0, 8, 8, 16, 24],
        "itemsize": 72,
    }
)
"""``rd_kafka_vu_t`` on a 64-bit machine (rdkafka.h), one argument of ``rd_kafka_produceva``:
``first`` to ``third`` are the members of its union's structures, ``i32`` is a number alone."""

PRODUCER = 0
CONF_OK = 0
F_COPY = 0x2
F_PARTITION = 0x8
ERR_QUEUE_FULL, ERR_TIMED_OUT, ERR_TOPIC_EXCEPTION = -184, -185, 17
PURGE_ALL = 0x1 | 0x2
"""Records in the queue and on their way."""
LOG_INFO = 6
"""syslog's; the default of ``log_level``."""
EVENT_DR, EVENT_LOG, EVENT_ERROR = 0x1, 0x4, 0x8
EVENTS = EVENT_DR | EVENT_LOG | EVENT_ERROR
VTYPE_RKT, VTYPE_PARTITION, VTYPE_VALUE, VTYPE_KEY = 2, 3, 4, 5
VTYPE_MSGFLAGS, VTYPE_TIMESTAMP, VTYPE_HEADER = 7, 8, 9


class DeliveryReport(ctypes.Structure):
    """``rd_kafka_message_t`` as a delivery report shows it."""

    _fields_ = [
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    ]


class MetadataPartition(ctypes.Structure):
    """``rd_kafka_metadata_partition_t``."""

    _fields_ = [
        ("id", c_int32),
        ("err", c_int),
        ("leader", c_int32),
        ("replica_cnt", c_int),
        ("replicas", c_void_p),
        ("isr_cnt", c_int),
        ("isrs", c_void_p),
    ]


class MetadataTopic(ctypes.Structure):
    """``rd_kafka_metadata_topic_t``."""

    _fields_ = [
        ("topic", c_char_p),
        ("partition_cnt", c_int),
        ("partitions", POINTER(MetadataPartition)),
        ("err", c_int),
    ]


class Metadata(ctypes.Structure):
    """``rd_kafka_metadata_t``."""

    _fields_ = [
        ("broker_cnt", c_int),
        ("brokers", c_void_p),
        ("topic_cnt", c_int),
        ("topics", POINTER(MetadataTopic)),
        ("orig_broker_id", c_int32),
        ("orig_broker_name", c_char_p),
    ]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_version_str": (c_char_p, []),
    "rd_kafka_conf_new": (c_void_p, []),
    "rd_kafka_conf_destroy": (None, [c_void_p]),
    "rd_kafka_conf_set": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "rd_kafka_conf_set_events": (None, [c_void_p, c_int]),
    "rd_kafka_new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "rd_kafka_destroy": (None, [c_void_p]),
    "rd_kafka_set_log_queue": (c_int, [c_void_p, c_void_p]),
    "rd_kafka_set_log_level": (None, [c_void_p, c_int]),
    "rd_kafka_queue_get_main": (c_void_p, [c_void_p]),
    "rd_kafka_queue_destroy": (None, [c_void_p]),
    "rd_kafka_queue_poll": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_event_type": (c_int, [c_void_p]),
    "rd_kafka_event_destroy": (None, [c_void_p]),
    "rd_kafka_event_error": (c_int, [c_void_p]),
    "rd_kafka_event_error_string": (c_char_p, [c_void_p]),
    "rd_kafka_event_log": (c_int, [c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int)]),
    "rd_kafka_event_message_next": (POINTER(DeliveryReport), [c_void_p]),
    "rd_kafka_err2str": (c_char_p, [c_int]),
    "rd_kafka_err2name": (c_char_p, [c_int]),
    "rd_kafka_fatal_error": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rd_kafka_topic_new": (c_void_p, [c_void_p, c_char_p, c_void_p]),
    "rd_kafka_topic_destroy": (None, [c_void_p]),
    "rd_kafka_metadata": (c_int, [c_void_p, c_int, c_void_p, POINTER(POINTER(Metadata)), c_int]),
    "rd_kafka_metadata_destroy": (None, [POINTER(Metadata)]),
    "rd_kafka_topic_name": (c_char_p, [c_void_p]),
    "rd_kafka_produce_batch": (c_int, [c_void_p, c_int32, c_int, c_void_p, c_int]),
    "rd_kafka_produceva": (c_void_p, [c_void_p, c_void_p, c_size_t]),
    "rd_kafka_flush": (c_int, [c_void_p, c_int]),
    "rd_kafka_purge": (c_int, [c_void_p, c_int]),
    "rd_kafka_outq_len": (c_int, [c_void_p]),
    "rd_kafka_init_transactions": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_begin_transaction": (c_void_p, [c_void_p]),
    "rd_kafka_error_code": (c_int, [c_void_p]),
    "rd_kafka_error_string": (c_char_p, [c_void_p]),
    "rd_kafka_error_is_fatal": (c_int, [c_void_p]),
    "rd_kafka_error_is_retriable": (c_int, [c_void_p]),
    "rd_kafka_error_destroy": (None, [c_void_p]),
}


@cache
def library() -> Any:
    """The loaded library. Loading makes no thread, so it is safe before a fork; two threads that
    load it at once get two handles of the one library.

    Raises:
        SettingRefused: it is not the one that exactum needs.
    """
    if ctypes.sizeof(c_void_p) != 8 or ctypes.sizeof(DeliveryReport) != MESSAGE.itemsize:
        raise SettingRefused("KAFKA_LIBRARY", "exactum needs a 64-bit Python.")
    from confluent_kafka import cimpl  # its import loads librdkafka into the process

    library = ctypes.CDLL(cimpl.__file__)
    try:
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except AttributeError as error:
        raise SettingRefused(
            "KAFKA_LIBRARY",
            "The librdkafka of the installed confluent-kafka lacks a function that exactum needs "
            f"({error}). Install confluent-kafka 2.11 or later from its wheel.",
        ) from error
    return library
