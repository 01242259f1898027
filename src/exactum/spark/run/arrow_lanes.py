"""Whether a query of ``arrow_kafka`` is read by its Python workers, and checks of what they have
read (docs/adr/0026).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from exactum.errors import CheckpointRefused, ExactumError, SettingRefused, Unavailable
from exactum.kafka.consumer.topic_consumer import LOST, TopicConsumer
from exactum.kafka.requests.topic_requests import EARLIEST, TopicRequests, TopicSeen
from exactum.kafka.settings.consumer_settings import consumer_settings
from exactum.kafka.settings.java_settings import librdkafka_settings
from exactum.protocol.sink import Guarantee, WriteOrder
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.kafka_ranges import KafkaRanges, Planned, PlannedBatch
from exactum.spark.master import is_one_process
from exactum.spark.run import lane_fit
from exactum.spark.run.lane_fit import is_plain
from exactum.spark.run.small_epoch import slots_of
from exactum.spark.run_context import RunContext
from exactum.spark.source import columnar
from exactum.spark.source.query_sources import RunningSource, sources_of
from exactum.spark.source.source_options import SourceOptions
from exactum.spark.source.topic_watch import SURE_AFTER_S, SURE_PAUSE_S
from exactum.spark.write.lane_jobs import LaneJobs, lane_numbers, lane_of
from exactum.spark.write.lane_task import LaneTask, MapFunction, Share, TopicRead
from exactum.spark.write.write_job import WriteJob, Written

logger = logging.getLogger("exactum")
T = TypeVar("T")

LANES_MAX = 16
"""Each lane costs a Python process that its workers are forked from."""
TOPICS_MAX = 8
"""Each topic that a run has read costs a client in each lane."""
ASK_MAX_S = 60.0
"""How long the driver asks brokers again that do not answer, where a poll may wait longer."""
_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class _Made:
    """What serves as long as the plan says the same."""

    columns: tuple[tuple[int, str], ...]
    function: str
    isolation: str
    jobs: LaneJobs


class ArrowLanes:
    """Of one run of a query. What cannot be read so once is not tried again."""

    def __init__(self, context: RunContext, sources: Sequence[RunningSource]) -> None:
        self._context = context
        self._sources = sources
        self._ranges = KafkaRanges(context.session, context.query.execution)
        self._declined = False
        self._looked = False
        self._made: _Made | None = None
        self._requests: TopicRequests | None = None
        self._ask_s = 0.0
        self._closed = False
        self._topics: dict[str, TopicSeen] = {}
        self._lanes: tuple[int, ...] = ()

    @staticmethod
    def of(context: RunContext) -> ArrowLanes | None:
        """None where the query has no source of ``arrow_kafka``'s."""
        sources = sources_of(context.query)
        asked = any(SourceOptions.of(source.options).in_workers for source in sources)
        return ArrowLanes(context, sources) if asked else None

    def written(self, frame: DataFrame, order: WriteOrder, job: WriteJob) -> Written | None:
        """What the sinks were given of the micro-batch, which is all of it; None where Spark has to
        read it.

        Raises:
            CheckpointRefused: records are gone, or the topic is another one.
            Unavailable: the brokers do not answer.
            EpochAborted, ExactumError, Exception: as ``WriteJob.run``.
        """
        found = self._recognised(frame)
        if found is None or not found.planned.ranges:
            return None
        planned = found.planned
        self._ask_s = min(ASK_MAX_S, planned.poll_timeout_ms / 1000)
        shares = self._shares(planned)
        if shares is None:
            return None
        if self._made is None or not _serves(self._made, planned):
            try:
                self._made = self._make(found, frame, job)
            except SettingRefused as error:
                self.declined(str(error))
                return None
        session = self._context.session
        written, reads = job.run_in_lanes(self._made.jobs, shares, session, order)
        self._check(reads, {one.topic for one in planned.ranges})
        found.set_rows_read(sum(one.records for one in reads))
        return written

    def declined(self, why: str) -> None:
        """From now on Spark reads; the log says so, once."""
        if not self._declined:
            self._declined = True
            logger.warning(
                "%s: arrow_kafka: Spark reads Kafka for this query, and not its Python workers by "
                "themselves: %s. Its results are the same.",
                self._context.query,
                why.rstrip("."),
            )

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        lane_numbers.give_back(self._lanes)
        if self._requests is not None:
            self._requests.close()

    # ---- whether -------------------------------------------------------------------------------

    def _recognised(self, frame: DataFrame) -> PlannedBatch | None:
        if self._declined:
            return None
        try:
            if not self._looked:
                why = self._why_not(frame)
                if why:
                    self.declined(why)
                    return None
                self._looked = True
            found = self._ranges.of(frame)
        except JvmError as error:
            self.declined(str(error))
            return None
        if isinstance(found, PlannedBatch):
            return found
        self.declined(found)
        return None

    def _why_not(self, frame: DataFrame) -> str:
        """Why no micro-batch of this run can be read so; empty: it may."""
        session = self._context.session
        if self._context.run.guarantee is Guarantee.AT_MOST_ONCE:
            return "at_most_once decides before it is read whether all records are there"
        if not is_one_process(self._context.query.master):
            return "the workers of a cluster do not keep their partitions"
        why = columnar.why_not(session)
        if why:
            return why
        if not self._ranges.are_there():
            return "the driver's class path has another version of exactum's jar"
        why = lane_fit.why_not(session)
        if why:
            return why
        if len(self._sources) != 1:
            return "the query has several sources"
        if SourceOptions.of(self._sources[0].options).stop is not None:
            return "stop= is given"
        if not all(is_plain(field.dataType) for field in frame.schema):
            return "its function returns a type that only Spark converts"
        return ""

    # ---- how -----------------------------------------------------------------------------------

    def _make(self, found: PlannedBatch, frame: DataFrame, job: WriteJob) -> _Made:
        """
        Raises:
            SettingRefused: the consumers cannot be set as Spark's are.
        """
        planned, session = found.planned, self._context.session
        options = self._sources[0].options
        partitions = sum(seen.partitions for seen in self._topics.values())
        settings = consumer_settings(
            options,
            SourceOptions.of(options).client,
            planned.isolation,
            math.ceil(partitions / len(self._lanes)),
            str(self._context.query),
        )
        # Values that are right one by one may be refused together: here, and not in a task.
        TopicConsumer(planned.ranges[0].topic, settings).close()
        command = found.function()
        function = None
        if command is not None:
            zone = str(session.conf.get(_ZONE))
            function = MapFunction(command, to_arrow_schema(frame.schema, timezone=zone))
        task = LaneTask(
            job.task_in_lanes,
            tuple(sorted(settings.items())),
            planned.columns,
            planned.poll_timeout_ms / 1000,
            function,
        )
        logger.info("%s: its Python workers read Kafka by themselves", self._context.query)
        jobs = LaneJobs(session, task, self._lanes)
        return _Made(planned.columns, planned.function, planned.isolation, jobs)

    def _shares(self, planned: Planned) -> dict[int, list[Share]] | None:
        """What each lane reads; None: Spark has to.

        Raises:
            CheckpointRefused: a topic is not there any more.
            Unavailable: the brokers do not answer.
        """
        topics = sorted({one.topic for one in planned.ranges})
        new = [topic for topic in topics if topic not in self._topics]
        if len(self._topics) + len(new) > TOPICS_MAX:
            self.declined(f"it reads more than {TOPICS_MAX} topics")
            return None
        if new:
            try:
                self._topics.update(self._described(new))
            except SettingRefused as error:
                self.declined(str(error))
                return None
        if not self._lanes:
            count = min(LANES_MAX, slots_of(self._context.session))
            self._lanes = lane_numbers.take(count)
        of_lane: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
        for one in planned.ranges:
            place = lane_of(one.topic, one.partition, len(self._lanes))
            ranges = of_lane.setdefault(place, {}).setdefault(one.topic, [])
            ranges.append((one.partition, one.first, one.until))
        return {
            place: [
                Share(topic, self._topics[topic].topic_id, tuple(ranges))
                for topic, ranges in of_topic.items()
            ]
            for place, of_topic in of_lane.items()
        }

    # ---- what is checked -----------------------------------------------------------------------

    def _check(self, reads: Sequence[TopicRead], topics: Collection[str]) -> None:
        """What came is of the topics that the run has begun with, and what is missing was never
        there to be read: transactions that were aborted and their ends, or what was compacted.

        Asked after the records came. A topic's id does not come back, and a log's beginning only
        moves on: so what holds now has held when they were read.

        Raises:
            CheckpointRefused: it is not so.
            Unavailable, SettingRefused: see ``TopicRequests``.
        """
        for topic, seen in self._described(topics).items():
            known = self._topics[topic]
            if None not in (known.topic_id, seen.topic_id) and known.topic_id != seen.topic_id:
                raise self._lost(
                    f"the topic {topic!r} was deleted and made anew while it was read (topic id "
                    f"{known.topic_id} before, {seen.topic_id} now)"
                )
        missing: dict[tuple[str, int], int] = {}
        for one in reads:
            if one.first_missing is not None:
                place = one.topic, one.partition
                missing[place] = min(one.first_missing, missing.get(place, one.first_missing))
        begins = self._begins(missing)
        for (topic, partition), first in sorted(missing.items()):
            begin = begins.get((topic, partition))
            if begin is None or begin > first:
                raise self._lost(
                    f"no record came for offset {first} of {topic}-{partition}, which begins at "
                    f"{'an unknown offset' if begin is None else begin} now"
                )

    def _described(self, topics: Collection[str]) -> dict[str, TopicSeen]:
        """All of them. A broker that has just started may not know one for a moment.

        Raises:
            CheckpointRefused: one does not exist.
            Unavailable, SettingRefused: see ``TopicRequests``.
        """
        sure_s: float | None = None
        while True:
            seen = self._answered(lambda requests: requests.describe(topics))
            missing = [topic for topic in topics if topic not in seen]
            if not missing:
                return seen
            now_s = time.monotonic()
            sure_s = now_s + SURE_AFTER_S if sure_s is None else sure_s
            if now_s > sure_s:
                raise self._lost(f"the topic {missing[0]!r} does not exist any more")
            time.sleep(SURE_PAUSE_S)

    def _begins(self, missing: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        if not missing:
            return {}
        return self._answered(
            lambda requests: requests.offsets(list(missing), EARLIEST, read_committed=False)
        )

    def _lost(self, what: str) -> ExactumError:
        return CheckpointRefused(f"{self._context.query}: {what}. {LOST}")

    def _answered(self, ask: Callable[[TopicRequests], T]) -> T:
        """What the brokers answer. Asked again where they do not: a connection that ends takes the
        request with it, and on one that a firewall has forgotten no answer comes. Spark's own
        requests survive both.

        Raises as ``ask``.
        """
        deadline_s = time.monotonic() + self._ask_s
        while True:
            try:
                return ask(self._asked())
            except Unavailable:
                if self._closed or time.monotonic() > deadline_s:
                    raise
            time.sleep(SURE_PAUSE_S)

    def _asked(self) -> TopicRequests:
        if self._requests is None:
            options = self._sources[0].options
            where = str(self._context.query)
            client = SourceOptions.of(options).client
            settings = librdkafka_settings(options, client, where)
            self._requests = TopicRequests(settings, where)
        return self._requests


def _serves(made: _Made, planned: Planned) -> bool:
    return (made.columns, made.function, made.isolation) == (
        planned.columns,
        planned.function,
        planned.isolation,
    )
