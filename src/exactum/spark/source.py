"""``read_kafka``: Kafka topics as a streaming frame, with defaults under which exactly-once holds."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from exactum.errors import SettingRefused
from exactum.spark.start_position import StartPosition, start_position

logger = logging.getLogger("exactum")

ISOLATION = "kafka.isolation.level"
DATA_LOSS = "failOnDataLoss"
SCALA_VERSION = "2.13"

Topics = str | Sequence[str] | re.Pattern[str] | Mapping[str, Sequence[int]]

_OWN = {
    "kafka.bootstrap.servers": "bootstrap_servers=",
    "subscribe": "topics",
    "subscribepattern": "topics",
    "assign": "topics",
    "startingoffsets": "start=",
    "startingtimestamp": "start=",
    "startingoffsetsbytimestamp": "start=",
}
"""Options of Spark's source that ``read_kafka`` has words of its own for, in lower case."""
_BATCH_ONLY = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")


def read_kafka(
    spark: SparkSession,
    topics: Topics,
    *,
    bootstrap_servers: str,
    start: str | StartPosition = "earliest",
    **options: object,
) -> DataFrame:
    """A streaming frame of Kafka records: key, value, topic, partition, offset, timestamp, timestampType.

    Args:
        spark: the session; it needs Spark's Kafka connector, as ``local_session`` has it.
        topics: one name (or several separated by commas), a list of names, a compiled pattern
            (``re.compile("orders-.*")``: every topic that matches, later ones too), or partitions by topic
            (``{"orders": [0, 1]}``).
        bootstrap_servers: ``host:port`` or several, separated by commas.
        start: where a query without a checkpoint begins: "earliest" (default) or "latest". Spark's own
            default is the latest, which silently leaves out what was written before the first start, and
            what is written while it starts; an exactly-once pipeline should say so if it wants that.
        options: further options of Spark's Kafka source by their own names: ``maxOffsetsPerTrigger=10000``,
            ``includeHeaders=True``, ``**{"kafka.security.protocol": "SASL_SSL"}``.

    Only committed records are read (``kafka.isolation.level=read_committed``) and the query stops when
    records are gone before they were read (``failOnDataLoss=true``), unless the options say otherwise; then
    a warning is logged.

    Raises:
        SettingRefused: an option that would break the guarantee or contradicts the arguments, an unknown
            start position, or no connector on the class path.
    """
    if not isinstance(bootstrap_servers, str) or not bootstrap_servers.strip():
        raise SettingRefused("read_kafka: bootstrap_servers must be text like 'localhost:9092'.")
    chosen = {
        "kafka.bootstrap.servers": bootstrap_servers,
        **subscription(topics),
        **start_position(start).options(),
        **further_options(options),
    }
    reader = spark.readStream.format("kafka")
    for name, value in chosen.items():
        reader = reader.option(name, value)
    try:
        return reader.load()
    except PySparkException as error:
        if "kafka" in str(error) and "find" in str(error) and "data source" in str(error):
            raise SettingRefused(_no_connector()) from error
        raise


def subscription(topics: Topics) -> dict[str, str]:
    """The option of Spark's source that names ``topics``.

    Raises:
        SettingRefused: none is named, or it is of no known form.
    """
    if isinstance(topics, re.Pattern):
        return {"subscribePattern": topics.pattern}
    if isinstance(topics, Mapping):
        if topics and all(_partitions(value) for value in topics.values()):
            return {"assign": json.dumps({name: list(value) for name, value in topics.items()})}
        raise SettingRefused(f"read_kafka: partitions by topic look like {{'orders': [0, 1]}}, not {topics!r}.")
    names = topics.split(",") if isinstance(topics, str) else list(topics)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise SettingRefused(
            f"read_kafka: topics={topics!r} names no topic. Give a name, a list of names, a compiled pattern, "
            "or partitions by topic."
        )
    return {"subscribe": ",".join(name.strip() for name in names)}


def further_options(options: Mapping[str, object]) -> dict[str, str]:
    """The user's options with our defaults below them. Names are compared as Spark does, ignoring case.

    Raises:
        SettingRefused: an option that has an argument of its own here, or that streams do not have.
    """
    chosen: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in _OWN:
            raise SettingRefused(f"read_kafka: give {_OWN[lower]} instead of the option {name!r}.")
        if lower in _BATCH_ONLY:
            raise SettingRefused(f"read_kafka: {name!r} is for batch reads; a stream has no end.")
        chosen[name] = str(value).lower() if isinstance(value, bool) else str(value)
    given = {name.lower(): value for name, value in chosen.items()}
    _check_isolation(given)
    if given.get(DATA_LOSS.lower(), "true").lower() == "false":
        logger.warning(
            "read_kafka: failOnDataLoss=false: records that Kafka deletes before they were read are skipped "
            "without an error, so 'exactly once' does not hold for them."
        )
    if ISOLATION not in given:
        chosen[ISOLATION] = "read_committed"
    if DATA_LOSS.lower() not in given:
        chosen[DATA_LOSS] = "true"
    return chosen


def _check_isolation(given: Mapping[str, str]) -> None:
    level = given.get(ISOLATION, "read_committed")
    if level == "read_uncommitted":
        logger.warning(
            "read_kafka: %s=read_uncommitted: records of transactions that are later aborted are read as if "
            "they were valid.",
            ISOLATION,
        )
    elif level != "read_committed":
        raise SettingRefused(
            f"read_kafka: {ISOLATION}={level!r} is not known; it may be read_committed or read_uncommitted."
        )


def _partitions(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(p, int) and not isinstance(p, bool) and p >= 0 for p in value)
    )


def _no_connector() -> str:
    version = pyspark.__version__
    return (
        "This Spark session has no Kafka connector on its class path. Make the session with "
        'exactum.local_session("name"), which brings it, or start it with '
        f'.config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{version}") '
        "(a session that is running already must be stopped first: jars are read at its start)."
    )
