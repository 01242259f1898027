"""What is looked at when a run begins that reads Kafka and writes to Kafka: that it does not read
what it writes, without an end, and that its source leaves the records of a key in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from exactum.errors import SettingRefused
from exactum.kafka.writer import KafkaWriterFactory
from exactum.protocol.sink import DEAD_LETTERS, OpenSink
from exactum.spark.live import RunningSource
from exactum.spark.query import Run
from exactum.spark.source.options import Subscription
from exactum.spark.source.watch import Clients

logger = logging.getLogger("exactum")

Opened = tuple[tuple[str, OpenSink], ...]
SPLITTING = ("minPartitions", "maxRecordsPerPartition")
"""Options with which Spark reads a partition in several tasks, which write at the same time."""


def kept_from_input(run: Run, opened: Opened) -> Opened:
    """The open sinks; those whose rows name their topic refuse what the query would read again.

    Raises:
        SettingRefused: one of the others writes to a topic that the query reads.
        Unavailable: nobody can tell, because the brokers of the source do not answer.
    """
    of_kafka = [name for name, sink in opened if isinstance(sink.writers, KafkaWriterFactory)]
    if not of_kafka:
        return opened
    sources = [source for source in run.sources if source.is_kafka]
    if of_kafka != [DEAD_LETTERS]:
        _warn_of_split_partitions(run, sources)
    with closing(Clients(run)) as clients:
        return tuple((name, _kept(run, name, sink, sources, clients)) for name, sink in opened)


def _kept(
    run: Run,
    name: str,
    sink: OpenSink,
    sources: Sequence[RunningSource],
    clients: Clients,
) -> OpenSink:
    writers = sink.writers
    if not isinstance(writers, KafkaWriterFactory):
        return sink
    inputs = tuple(
        names
        for source in sources
        if source.refuses("failOnLoop")
        and (names := Subscription.of(source.options).names())
        and (writers.topic is None or names.fullmatch(writers.topic))
        and _is_of_cluster(source, writers, sink.trace["kafka"], clients)
    )
    if inputs and writers.topic is not None:
        raise SettingRefused(
            "OWN_OUTPUT",
            f"{run}: it reads the topic {writers.topic!r}, to which {name!r} would write, so "
            "it would read its own output, without an end. Give one of them another topic, or say "
            "failOnLoop=False in read_kafka if you mean it. Nothing was written.",
        )
    return replace(sink, writers=replace(writers, inputs=inputs))


def _is_of_cluster(
    source: RunningSource, writers: KafkaWriterFactory, cluster_id: str, clients: Clients
) -> bool:
    """Whether the source reads where the sink writes. One address in common tells; else the cluster
    is asked, if the driver can log in as the source does.
    """
    read, written = source.option("kafka.bootstrap.servers") or "", writers.plan.bootstrap_servers
    if {one.strip() for one in read.split(",")} & {one.strip() for one in written.split(",")}:
        return True
    requests = clients.of(source)
    return requests is not None and requests.cluster_id() == cluster_id


def _warn_of_split_partitions(run: Run, sources: Sequence[RunningSource]) -> None:
    given = {name for name in SPLITTING for source in sources if source.option(name) is not None}
    if given:
        logger.warning(
            "%s: with %s Spark reads a partition in several tasks, which write at the same time, "
            "so records of one key may come to Kafka in another order. Leave it out, or sort in "
            "the sink's rows= (docs/guarantees.md: order).",
            run,
            " and ".join(sorted(given)),
        )
