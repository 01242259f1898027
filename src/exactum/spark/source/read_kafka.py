"""``read_kafka``: Kafka topics as a streaming frame, with defaults under which exactly-once
holds.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import checked_servers, librdkafka_settings
from exactum.kafka.requests import BrokerRequests, Patience, TopicSeen
from exactum.kafka.settings import as_texts
from exactum.spark.jvm.java_class import JvmError, java_class, reason_of
from exactum.spark.query import is_connect
from exactum.spark.source import positions
from exactum.spark.source.columnar import SPARKS, kafka_format, rows_format
from exactum.spark.source.options import (
    SourceOptions,
    Subscription,
    Topics,
    further_options,
    refused,
    subscription,
)
from exactum.spark.source.positions import Positions, Resolved, Start, StopAt
from exactum.spark.supervised import standby

logger = logging.getLogger("exactum")

SCALA_VERSION = "2.13"
LOOK_TIMEOUT_MS = 8_000
"""For one question at the start; a wrong address is told within ten seconds."""
NEW_TOPIC_S = 2.0
"""How long a topic that does not exist is looked for."""
LOOK_PAUSE_S = 0.2


def read_kafka(
    spark: SparkSession,
    topics: Topics,
    *,
    bootstrap_servers: str,
    group_id: str | None = None,
    start: Start | None = None,
    stop: StopAt | None = None,
    auto_offset_reset: str = "earliest",
    commit_offsets: bool | None = None,
    client: Mapping[str, object] | None = None,
    **options: object,
) -> DataFrame:
    """A streaming frame of Kafka records: key, value, topic, partition, offset, timestamp,
    timestampType.

    Args:
        spark: the session; it needs Spark's Kafka connector, as ``local_session`` has it.
        topics: one name (or several separated by commas), a list of names, a compiled pattern
            (``re.compile("orders-.*")``: every topic that matches, later ones too), or partitions
            by topic (``{"orders": [0, 1]}``).
        bootstrap_servers: ``host:port`` or several, separated by commas.
        group_id: a consumer group that shows how far the query is: after each epoch the epoch's end
            offsets are committed to it, for lag tools. The query itself goes by its checkpoint
            alone.
        start: where a query without a checkpoint begins; a checkpoint always takes precedence.
            "group": at the group's offsets (the default with a group id); "earliest" (the default
            without) or "latest"; a datetime with a time zone or milliseconds since the epoch: the
            first record at or after it, the end where there is none; ``{"orders": {0: 123}}``:
            offsets, where partitions that are not named follow the group. Resolved now, except the
            two words. Later partitions start at their beginning.
        stop: for a backfill: no batch reads past it, and a query that exactum starts ends when
            everything before it is in the sinks.
            "latest" (as far as readers come now), a time as for ``start``, or the offsets of all
            partitions; the record at the stop is the first that is not read. Partitions that come
            later are not read. A query
            of several sources ends when all are bounded and read. A later start with another stop,
            or none, reads on. The driver needs exactum's jar, which ``local_session`` has.
        auto_offset_reset: where a partition begins for which the group has no offset: "earliest"
            (default), "latest", or "none": refused.
        commit_offsets: False: nothing is committed to the group. Default: as soon as there is a
            group id.
        client: librdkafka's settings for what the driver asks the brokers, where they cannot be
            derived from the ``kafka.*`` options: ``{"security.protocol": "SASL_SSL",
            "ssl.ca.location": "ca.pem", ...}``.
        options: further options of Spark's Kafka source by their own names:
            ``maxOffsetsPerTrigger=10000``, ``includeHeaders=True``, ``**{"kafka.security.protocol":
            "SASL_SSL"}``.

    Only committed records are read (``kafka.isolation.level=read_committed``) and the query stops
    when records are gone before they were read (``failOnDataLoss=true``), unless the options say
    otherwise; then a warning is logged. A query may not write to a topic that it reads, unless
    ``failOnLoop=False`` is among the options.

    Raises:
        SettingRefused: an option that would break the guarantee or contradicts the arguments, an
            unknown or impossible position, a topic that does not exist, or no connector (or with
            ``stop``, no jar of exactum's) on the class path.
        Unavailable: the cluster did not answer within some seconds; or an open transaction upstream
            holds readers back before a ``stop`` that is a time.
    """
    if client is not None and not isinstance(client, Mapping):
        raise refused(f": client={client!r} must be a dictionary of librdkafka's settings.")
    session: object = spark
    if not isinstance(session, SparkSession) and not is_connect(session):
        raise refused(f": spark={spark!r} must be a SparkSession, as exactum.local_session makes.")
    _check_group(group_id, auto_offset_reset, commit_offsets)
    begin = positions.checked_start(start, group_id)
    until = None if stop is None else positions.checked(stop, "stop", positions.STOP_WORDS)
    chosen = {
        "kafka.bootstrap.servers": checked_servers(bootstrap_servers, "read_kafka"),
        **_read_by_java(spark, subscription(topics)),
        **further_options(options),
    }
    own = dict(as_texts(client or {}, {}, "read_kafka(client=)"))
    word = str(begin) if begin in positions.SPARKS_WORDS else None
    resolved, end = Resolved(word or "", f"all partitions at {word}"), None
    with _asked(
        chosen, own, group_id, auto_offset_reset, needed=until is not None or word is None
    ) as found:
        if found is not None and word is None:
            resolved = positions.resolved_start(begin, found)
        if found is not None and until is not None:
            end = positions.resolved_stop(until, found)
    if resolved.refusal is not None:
        logger.warning(
            "read_kafka: %s. A query that has a checkpoint goes on from there.", resolved.refusal
        )
    else:
        logger.info("read_kafka: a query without a checkpoint begins with %s", resolved.where)
    ours = SourceOptions(
        source_id=secrets.token_hex(8),
        group_id=None if commit_offsets is False else group_id,
        stop=end,
        client=own,
    )
    return _load(
        spark,
        {**chosen, "startingOffsets": resolved.starting_offsets, **ours.options()},
        bounded=end is not None,
    )


def _check_group(group_id: str | None, auto_offset_reset: str, commit_offsets: bool | None) -> None:
    """
    Raises:
        SettingRefused: one of the three is not known, or offsets shall be committed to no group.
    """
    if group_id is not None and (not isinstance(group_id, str) or not group_id.strip()):
        raise refused(": group_id must be the name of a consumer group, or None.")
    if auto_offset_reset not in positions.RESETS:
        raise refused(
            f": auto_offset_reset={auto_offset_reset!r} is not known; it may be "
            f"{', '.join(map(repr, positions.RESETS))}."
        )
    if commit_offsets is not None and not isinstance(commit_offsets, bool):
        raise refused(f": commit_offsets={commit_offsets!r} must be True, False or None.")
    if commit_offsets and group_id is None:
        raise refused(": commit_offsets=True needs group_id=, the group to commit to.")


def _read_by_java(spark: SparkSession, subscribed: dict[str, str]) -> dict[str, str]:
    """
    Raises:
        SettingRefused: a pattern that Python knows and Java does not.
    """
    pattern = subscribed.get("subscribePattern")
    if pattern is not None and not is_connect(spark):
        try:
            java_class(spark, "java.util.regex.Pattern").compile(pattern)
        except (JvmError, PySparkException) as error:
            raise refused(
                f": Java, which reads the pattern {pattern!r} as well, does not understand it: "
                f"{reason_of(error)}. Write it so that both do."
            ) from None
    return subscribed


@contextmanager
def _asked(
    chosen: Mapping[str, str],
    client: Mapping[str, str],
    group_id: str | None,
    reset: str,
    *,
    needed: bool,
) -> Iterator[Positions | None]:
    """What the brokers say about the partitions that are there now. They are asked for every kind
    of start, so that a wrong address and a missing topic are told here, and not by a query that
    reads nothing.

    ``needed``: whether offsets are asked for. Else it is None where the driver cannot log in as
    Spark does.

    Raises:
        SettingRefused: a topic or a partition does not exist, or the driver cannot log in and has
            to.
        Unavailable: no answer within ``LOOK_TIMEOUT_MS``.
    """
    try:
        settings = librdkafka_settings(chosen, client, "read_kafka")
        requests = BrokerRequests(settings, "read_kafka", Patience.within(LOOK_TIMEOUT_MS))
    except SettingRefused as error:
        if needed or client:
            raise
        logger.info("read_kafka: neither the address nor the topics were looked at: %s", error)
        yield None
        return
    try:
        given = SourceOptions.of(chosen)
        seen = _seen(given.subscription, requests, chosen["kafka.bootstrap.servers"])
        partitions = given.subscription.partitions(seen)
        yield Positions(requests, partitions, group_id, reset, given.read_committed)
    finally:
        requests.close()


def _seen(subscribed: Subscription, requests: BrokerRequests, servers: str) -> dict[str, TopicSeen]:
    """The topics that are there now. One that was made a moment ago may not be known to every
    broker: look twice.

    Raises:
        SettingRefused: a topic or a partition that is named does not exist.
        Unavailable: no answer.
    """
    seen = subscribed.seen(requests)
    deadline_s = time.monotonic() + NEW_TOPIC_S  # the first answer may take longer than that
    while missing := _missing(subscribed, seen):
        if time.monotonic() > deadline_s:
            raise SettingRefused(
                "SOURCE_TOPIC_MISSING",
                f"read_kafka: {', '.join(missing)} does not exist at {servers}, or the user lacks "
                "DESCRIBE on it. Create it first: exactum never creates topics.",
            )
        time.sleep(LOOK_PAUSE_S)
        seen = subscribed.seen(requests)
    if not seen:
        logger.warning(
            "read_kafka: there are no %s at %s yet; the query waits for one.", subscribed, servers
        )
    return seen


def _missing(subscribed: Subscription, seen: Mapping[str, TopicSeen]) -> list[str]:
    """Topics, and partitions of them."""
    there = subscribed.partitions(seen)
    return [
        *(name for name in subscribed.named() if name not in seen),
        *(f"{topic}-{index}" for topic, index in there if index >= seen[topic].partitions),
    ]


def _load(spark: SparkSession, options: dict[str, str], *, bounded: bool) -> DataFrame:
    standby.remember_source(options)
    over_connect = is_connect(spark)
    if bounded and over_connect:
        raise SettingRefused(
            "SPARK_CONNECT",
            "read_kafka(stop=...) does not work over Spark Connect. Use a trigger that ends, "
            ".trigger(availableNow=True), or a classic session.",
        )
    kind = SPARKS if over_connect else kafka_format(spark)
    if bounded and kind == SPARKS:
        kind, rows = rows_format(spark)
        options |= rows
    reader = spark.readStream.format(kind)
    for name, value in options.items():
        reader = reader.option(name, value)
    try:
        frame = reader.load()
        if over_connect:
            frame.schema  # noqa: B018  (asks the server, which may lack the connector)
        return frame
    except PySparkException as error:
        if "kafka" in str(error) and "find" in str(error) and "data source" in str(error):
            raise SettingRefused("CONNECTOR_MISSING", _no_connector()) from error
        raise


def _no_connector() -> str:
    version = pyspark.__version__
    return (
        "This Spark session has no Kafka connector on its class path. Make the session with "
        'exactum.local_session("name"), which brings it, or start it with '
        '.config("spark.jars.packages", '
        f'"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{version}"), where {version} is '
        f"not published with the newest {version.rpartition('.')[0]} that is (a session that is "
        "running already must be stopped first: jars are read at its start)."
    )
