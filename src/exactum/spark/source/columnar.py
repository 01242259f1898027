"""By which source ``read_kafka`` reads: by ours in columns
(docs/adr/0025-columnar-kafka-source.md); by ours in rows, where it is to stop and cannot read in
columns; or by Spark's own. All go by the same options and the same checkpoint.
"""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from exactum.errors import SettingRefused
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.java_class import is_there, java_class
from exactum.spark.jvm.packed_batches import listed_jars
from exactum.spark.master import is_one_process
from exactum.spark.runtime.spark_jars import COLUMNAR_KAFKA_JAR, FORMAT, SPARK_VERSIONS

logger = logging.getLogger("exactum")

SPARKS = "kafka"
SETTING = "spark.exactum.columnarKafka.enabled"
"""A Spark setting; "false": Spark's own source. "true": its class is taken to be on the class path
of all executors where the jar is not listed in ``spark.jars``."""
ROWS = "exactum.rows"
"""Our source's option to read by Spark's own reader (ColumnarKafka.java)."""


def kafka_format(session: SparkSession) -> str:
    """The format of the source that this session reads Kafka with."""
    why = why_not(session)
    if why:
        logger.debug("Kafka is read by Spark's own source: %s", why)
    return SPARKS if why else FORMAT


def why_not(session: SparkSession) -> str:
    """Why this session reads Kafka with Spark's own source; empty: it reads in columns."""
    setting = str(session.conf.get(SETTING, "")).lower()
    if setting == "false":
        return f"{SETTING}=false"
    if not session.version.startswith(SPARK_VERSIONS):
        return f"this is Spark {session.version}"
    why = _why_not_here(session)
    if not why and setting != "true" and not _has_executors_class(session):
        return f"spark.jars does not list {COLUMNAR_KAFKA_JAR.name}, and the executors may lack it"
    return why


def rows_format(session: SparkSession) -> tuple[str, dict[str, str]]:
    """Our source without its columns, and its option for that. Only the driver needs its jar.

    Raises:
        SettingRefused: the driver cannot use it.
    """
    why = _why_not_here(session)
    if why:
        raise SettingRefused(
            "STOP_NEEDS_JAR",
            "read_kafka(stop=...) needs exactum's jar on the driver's class path, beside Spark's "
            f"Kafka connector ({why}). Make the session with exactum.local_session, or add "
            "exactum.local.columnar_kafka_jar() to its spark.jars.",
        )
    return FORMAT, {ROWS: "true"}


def _why_not_here(session: SparkSession) -> str:
    """Why this driver cannot use our source; empty: it can."""
    try:
        source = java_class(session, FORMAT)
        if not is_there(source):
            return f"the driver's class path has no {COLUMNAR_KAFKA_JAR.name}"
        source()  # which fails where its class loader does not see Spark's connector
    except JvmError as error:
        return str(error)
    return ""


def _has_executors_class(session: SparkSession) -> bool:
    if is_one_process(str(session.sparkContext.master)):
        return True
    return any(jar.endswith(f"/{COLUMNAR_KAFKA_JAR.name}") for jar in listed_jars(session))
