"""Whether a session, and what a function returns, suit Python workers that read Kafka themselves
(docs/adr/0026).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_REUSE = "spark.python.worker.reuse"
_KILL_IDLE = "spark.python.worker.killOnIdleTimeout"
_IDLE_S = "spark.python.worker.idleTimeoutSeconds"
_TOKENS = "spark.kafka.clusters."
_PLAIN = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)


def why_not(session: SparkSession) -> str:
    """Which setting of the session is against it; empty: none is."""
    conf: Any = session.sparkContext.getConf()
    if str(session.conf.get(_LARGE, "false")).lower() == "true":
        return f"{_LARGE}=true"
    if conf.get(_REUSE, "true").lower() == "false":
        return f"{_REUSE}=false: no worker lives on"
    kills = conf.get(_KILL_IDLE, "false").lower() == "true"
    if kills and conf.get(_IDLE_S, "0") not in ("0", "0s"):
        # It is given one array, and sends nothing before its task ends.
        return f"{_KILL_IDLE}=true: to Spark such a worker seems idle while it works"
    if any(name.startswith(_TOKENS) for name, _ in conf.getAll()):
        return f"Spark logs in by delegation tokens ({_TOKENS}*)"
    return ""


def is_plain(kind: DataType) -> bool:
    """Whether Arrow has the type as Spark's workers are given it."""
    if isinstance(kind, StructType):
        return all(is_plain(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return is_plain(kind.elementType)
    if isinstance(kind, MapType):
        return is_plain(kind.keyType) and is_plain(kind.valueType)
    if type(kind) is StringType:
        return kind == StringType()  # another collation is another type
    return isinstance(kind, _PLAIN)
