"""Exactly-once for PySpark streaming, end to end: Kafka in, any Spark transformation, Kafka,
databases, files and your own targets out, through any crash.

    orders = exactum.read_kafka(spark, "orders", bootstrap_servers="localhost:9092")
    once = exactum.exactly_once(exactum.KafkaSink("totals", bootstrap_servers="localhost:9092"))
    query = once.start(orders.writeStream, checkpoint="/data/orders")

Names are imported when they are first used: ``import exactum`` on an executor loads neither pyspark
nor a Kafka client, and has no effect. Under ``exactum run`` the first name that is used tells the
supervisor that this process is there.

``import exactum`` raises ImportError where PySpark is missing or of an unsupported version. Parts
that need no PySpark (``import exactum.errors``, the command ``exactum``) can be imported without.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from exactum._version import __version__
from exactum.packages import in_the_way, require_pyspark

if TYPE_CHECKING:
    from exactum import errors, events, local
    from exactum.custom.transaction_name import TransactionName, TransactionScope
    from exactum.custom.two_phase import TransactionLost, TwoPhaseCommitSink
    from exactum.custom.write_ahead import WriteAheadSink
    from exactum.files.sink import FileSink
    from exactum.formats.avro_format import Avro
    from exactum.formats.function_format import Function
    from exactum.formats.json_format import Json
    from exactum.formats.protobuf_format import Protobuf
    from exactum.formats.text_format import String
    from exactum.kafka.sink import KafkaSink
    from exactum.lake.delta import DeltaSink
    from exactum.lake.iceberg import IcebergSink
    from exactum.log_format import JsonFormatter
    from exactum.monitor.metrics_server import register_metrics, serve_metrics
    from exactum.spark.control.stream import control_stream
    from exactum.spark.decoding.decode import decode
    from exactum.spark.delivery import Delivery, at_least_once, at_most_once, exactly_once
    from exactum.spark.load import Loaded
    from exactum.spark.session import local_session
    from exactum.spark.source.read_kafka import read_kafka
    from exactum.spark.streaming_query import Query
    from exactum.spark.table_sink import SparkTableSink, TableTransaction
    from exactum.spark.write.view import Rows
    from exactum.sql.mysql.sink import MySQLSink
    from exactum.sql.postgres.sink import PostgresSink

__all__ = [
    "Avro",
    "Delivery",
    "DeltaSink",
    "FileSink",
    "Function",
    "IcebergSink",
    "Json",
    "JsonFormatter",
    "KafkaSink",
    "Loaded",
    "MySQLSink",
    "PostgresSink",
    "Protobuf",
    "Query",
    "Rows",
    "SparkTableSink",
    "String",
    "TableTransaction",
    "TransactionLost",
    "TransactionName",
    "TransactionScope",
    "TwoPhaseCommitSink",
    "WriteAheadSink",
    "__version__",
    "at_least_once",
    "at_most_once",
    "control_stream",
    "decode",
    "errors",
    "events",
    "exactly_once",
    "local",
    "local_session",
    "read_kafka",
    "register_metrics",
    "serve_metrics",
]

_WHERE = {
    "Avro": "exactum.formats.avro_format",
    "Delivery": "exactum.spark.delivery",
    "DeltaSink": "exactum.lake.delta",
    "FileSink": "exactum.files.sink",
    "Function": "exactum.formats.function_format",
    "IcebergSink": "exactum.lake.iceberg",
    "Json": "exactum.formats.json_format",
    "JsonFormatter": "exactum.log_format",
    "KafkaSink": "exactum.kafka.sink",
    "Loaded": "exactum.spark.load",
    "MySQLSink": "exactum.sql.mysql.sink",
    "PostgresSink": "exactum.sql.postgres.sink",
    "Protobuf": "exactum.formats.protobuf_format",
    "Query": "exactum.spark.streaming_query",
    "Rows": "exactum.spark.write.view",
    "SparkTableSink": "exactum.spark.table_sink",
    "String": "exactum.formats.text_format",
    "TableTransaction": "exactum.spark.table_sink",
    "TransactionLost": "exactum.custom.two_phase",
    "TransactionName": "exactum.custom.transaction_name",
    "TransactionScope": "exactum.custom.transaction_name",
    "TwoPhaseCommitSink": "exactum.custom.two_phase",
    "WriteAheadSink": "exactum.custom.write_ahead",
    "at_least_once": "exactum.spark.delivery",
    "at_most_once": "exactum.spark.delivery",
    "control_stream": "exactum.spark.control.stream",
    "decode": "exactum.spark.decoding.decode",
    "exactly_once": "exactum.spark.delivery",
    "local_session": "exactum.spark.session",
    "read_kafka": "exactum.spark.source.read_kafka",
    "register_metrics": "exactum.monitor.metrics_server",
    "serve_metrics": "exactum.monitor.metrics_server",
}
_MODULES = ("errors", "events", "local")


def _is_for_a_part() -> bool:
    """Whether this import is on the way to a part: ``import exactum.errors`` imports ``exactum``
    first.

    Python tells a package for which part it is imported only by the calls of its import system.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load":
            name = str(frame.f_locals.get("name"))
            if name != __name__:
                return name.startswith(f"{__name__}.")
        frame = frame.f_back
    return False


if not _is_for_a_part():
    require_pyspark()


def __getattr__(name: str) -> Any:
    if name not in _WHERE and name not in _MODULES:
        raise AttributeError(f"module 'exactum' has no attribute {name!r}")
    if _WHERE.get(name, "").startswith("exactum.spark."):
        require_pyspark()
    if name in _MODULES:
        return importlib.import_module(f"exactum.{name}")
    try:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    except (ImportError, AttributeError):
        message = in_the_way()
        if message is None:
            raise
        raise ImportError(message) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "EXACTUM_SUPERVISOR" in os.environ:
    # Started by `exactum run`: each has to hear how the other ends, whatever the script does next.
    importlib.import_module("exactum.spark.supervised.process").current()
