"""Who listens to a run for its Kafka sources."""

from __future__ import annotations

import logging

from exactum.spark.epoch_listener import EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.source.clients import Clients
from exactum.spark.source.group_offsets import CommittedSource, GroupOffsets
from exactum.spark.source.kafka_options import ISOLATION, reads_committed
from exactum.spark.source.query_sources import sources_of
from exactum.spark.source.source_options import SourceOptions
from exactum.spark.source.start_report import StartReport
from exactum.spark.source.topic_watch import TopicWatch
from exactum.spark.source.watched_source import WatchedSource

logger = logging.getLogger("exactum")


def source_listeners(context: RunContext, clients: Clients) -> list[EpochListener]:
    """The listeners of the query's Kafka sources; none where it has no such source. They use
    ``clients`` to their end.

    Raises:
        SettingRefused: the driver cannot log in as the source does, and has to commit offsets.
    """
    running = context.query
    sources = [s for s in sources_of(running) if s.is_kafka and s.same_as == s.index]
    if not sources:
        return []
    for source in sources:
        if not SourceOptions.of(source.options).source_id and not reads_committed(source.options):
            logger.warning(
                "%s: source %d, made by Spark's own reader, reads records of transactions that "
                "are still open or were aborted as if they were valid: kafka.isolation.level is "
                'not read_committed. Say .option("%s", "read_committed"), or use '
                "exactum.read_kafka.",
                running,
                source.index,
                ISOLATION,
            )
    watched: list[WatchedSource] = []
    committed: list[CommittedSource] = []
    for source in sources:
        requests = clients.of(source)
        if requests is None:
            continue
        watched.append(WatchedSource(running, source, requests, context.record))
        chosen = SourceOptions.of(source.options)
        if chosen.commit_offsets:
            committed.append(CommittedSource(source, chosen, requests))
    listeners: list[EpochListener] = [StartReport(context, sources)]
    if watched:
        listeners.insert(0, TopicWatch(watched, context))
    if committed:
        listeners.append(GroupOffsets(running, committed))
    return listeners
