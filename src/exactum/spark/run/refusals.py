"""What a start refuses of a query and of its sinks, before the first row: triggers and clusters
under which no guarantee holds, places and names that two would share, and a query that reads what
it writes.

Spark refuses async progress tracking, the continuous trigger and real-time mode for
``foreachBatch`` when the query starts, each with a conf that switches the check off; here they are
refused whatever is set. Over Spark Connect the client refuses what its writer has
(``connect.start``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import combinations

from exactum.errors import SettingRefused
from exactum.files.place import is_found_below
from exactum.kafka.writer import KafkaWriterFactory
from exactum.protocol.sink import DEAD_LETTERS, Guarantee, OpenSink
from exactum.spark.arguments import Targets
from exactum.spark.live import RunningSource
from exactum.spark.query import Run, is_connect
from exactum.spark.settings import is_one_process
from exactum.spark.source.options import Subscription
from exactum.spark.source.watch import Clients

logger = logging.getLogger("exactum")


def refuse_unsafe(run: Run) -> None:
    """Refuse a query under which no guarantee can hold.

    Raises:
        SettingRefused: its trigger or its progress tracking gives the same batch id other offsets
            later.
    """
    how = f"{run.trigger} in {run.execution_class}"
    if any(unsafe in how for unsafe in ("AsyncProgressTracking", "Continuous", "RealTime")):
        raise unsafe_trigger(run, how)


def unsafe_trigger(query: object, how: str) -> SettingRefused:
    return SettingRefused(
        "TRIGGER_UNSAFE",
        f"{query} runs with {how}: a batch may have other offsets after a crash than before, so "
        "rows would be lost or doubled. Use a processing-time or available-now trigger, without "
        "asyncProgressTrackingEnabled. Nothing was written.",
    )


def refuse_repeated_stages(run: Run) -> None:
    """At most once cannot tell a repeated stage's tasks from first tries: Spark does not tell
    Python. Stages repeat when shuffle files are lost, which on a local master are lost with its
    disk alone. The scheduler has its settings from the application's start (DAGScheduler.scala).
    """
    if run.guarantee is not Guarantee.AT_MOST_ONCE or is_one_process(run.master):
        return
    connected = is_connect(run.session)
    conf = run.session.conf if connected else run.session.sparkContext.getConf()
    wanted = {"spark.stage.maxConsecutiveAttempts": "1"}
    if conf.get("spark.decommission.enabled", "false") == "true":
        wanted["spark.stage.ignoreDecommissionFetchFailure"] = "false"
    missing = [f"{key}={value}" for key, value in wanted.items() if conf.get(key, "") != value]
    if missing:
        raise SettingRefused(
            "AT_MOST_ONCE_CLUSTER",
            f"{run} is at most once on the cluster {run.master}, where Spark repeats a "
            "stage whose shuffle files are lost and so would write rows twice. Start the "
            f"application with {' and '.join(missing)}: a session that is there already does not "
            "take it. Nothing was written.",
        )


# ---- places and names that are shared ------------------------------------------------------------


def refuse_shared_targets(targets: Targets, opened: Sequence[tuple[str, OpenSink]]) -> None:
    """Two sinks on one target write each row of the batch twice, unless each takes a part of it by
    ``rows=``. Who reads a folder finds what lies in a folder below it as well.
    """
    _refuse_equal_names(targets, opened)
    sinks = targets.all()
    for one, two in combinations(range(len(opened)), 2):
        (first, at_first), (second, at_second) = opened[one], opened[two]
        if at_first.target is None or at_first.target != at_second.target:
            for outer, inner in ((one, two), (two, one)):
                _refuse_folder_within(targets, opened, outer, inner)
            continue
        if two == len(targets.sinks):
            raise SettingRefused(
                "TARGET_SHARED",
                f"The dead letters go to the target of the sink {first!r}: {at_first.target}. Its "
                "readers would take them for rows. Give them a place of their own. Nothing was "
                "written.",
            )
        if sinks[one].rows is None or sinks[two].rows is None or sinks[one].rows == sinks[two].rows:
            raise SettingRefused(
                "TARGET_SHARED",
                f"Two sinks, {first!r} and {second!r}, write to one target: {at_first.target}. "
                "Every row would be there twice. Remove one, or give each a rows= of its own "
                "that takes its part of the batch. Nothing was written.",
            )


def _refuse_equal_names(targets: Targets, opened: Sequence[tuple[str, OpenSink]]) -> None:
    """Sinks that say no target of theirs, as those of the user's own, are told apart by their names
    alone. Two of one name are numbered: in another order, the next start would give to the one what
    the other has decided.
    """
    untold: dict[str, str] = {}
    for sink, (name, open_sink) in zip(targets.sinks, opened, strict=False):
        if open_sink.target is not None:
            continue
        if sink.name in untold:
            raise SettingRefused(
                "SINK_NAME_TWICE",
                f"There are two sinks of the name {sink.name!r}, and only their order tells which "
                "is which: a start with another order would give the rows of the one to the "
                "other. Give each a name= of its own, and keep it. (A checkpoint that has run "
                f"with them knows them as {untold[sink.name]!r} and {name!r}: these go on with "
                "it.) Nothing was written.",
            )
        untold[sink.name] = name


def _refuse_folder_within(
    targets: Targets, opened: Sequence[tuple[str, OpenSink]], outer: int, inner: int
) -> None:
    """The sink ``inner`` writes where readers of ``outer`` look, and not a part of the batch that
    ``outer`` does not take.
    """
    sinks, dead = targets.all(), len(targets.sinks)
    own = None not in (sinks[outer].rows, sinks[inner].rows)
    if dead not in (outer, inner) and own and sinks[outer].rows != sinks[inner].rows:
        return
    what = "dead letters" if inner == dead else f"sink {opened[inner][0]!r}"
    refuse_within([opened[outer]], what, opened[inner][1].folder)


def refuse_within(opened: Sequence[tuple[str, OpenSink]], what: str, place: str) -> None:
    """``what`` lies at ``place``, a folder or prefix, within that of a sink. One that has no place
    has an empty one.
    """
    for name, sink in opened:
        if is_found_below(sink.folder, place):
            raise SettingRefused(
                "FOLDER_WITHIN",
                f"The place of the {what}, {place}, lies within the folder of the sink {name!r}, "
                "whose readers would take its files for rows. Give it a folder outside of that "
                "one, or one whose name begins with an underscore. Nothing was written.",
            )


# ---- from Kafka to Kafka -------------------------------------------------------------------------

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
