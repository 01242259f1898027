"""A listener that commits an epoch's end offsets to a consumer group, so that lag tools see how far
a query is.

For onlookers only: the query goes by its checkpoint. It happens after the epoch stands in every
sink, in a thread of its own that keeps nothing but the newest offsets, so no epoch waits for it and
the group is never ahead of the sinks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.errors import ExactumError, SettingRefused
from exactum.kafka.requests.topic_requests import TopicRequests
from exactum.protocol.model import Completed
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.query import RunningQuery
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.source_options import SourceOptions

logger = logging.getLogger("exactum")

PAUSE_S = 1.0
"""Between two commits of a busy query."""
REFRESH_AFTER_S = 3600.0
"""A quiet query commits again after this long: brokers forget offsets after
offsets.retention.minutes (7 days).
"""
CLOSE_TIMEOUT_S = 5.0
SHOWN_MAX = 3


Group = tuple[str, str]
"""A consumer group: its cluster, and its id there."""


@dataclass(frozen=True)
class CommittedSource:
    """A source whose offsets go to ``chosen.group_id``."""

    source: RunningSource
    chosen: SourceOptions
    requests: TopicRequests


class GroupOffsets(EpochListener):
    """Commits for all sources of one run that have a group id."""

    def __init__(self, running: RunningQuery, sources: Sequence[CommittedSource]) -> None:
        self._running = running
        self._sources = tuple(sources)
        self._requests: dict[Group, TopicRequests] = {}
        self._groups: dict[int, Group] = {}  # by source index; known from the first batch on
        self._changed = threading.Condition()
        self._newest: dict[Group, Offsets] | None = None
        self._committed: dict[Group, Offsets] | None = None
        self._committed_s = time.monotonic()
        self._closing = False
        self._told: set[tuple[Group, str]] = set()
        self._thread = threading.Thread(target=self._run, name="exactum-groups", daemon=True)
        self._thread.start()

    def begin(self, batch: Batch) -> None:
        """Nothing is committed yet: whether this run may go on from these offsets is not decided,
        and a start that is refused, from an old copy of the checkpoint, must not move the group
        back.

        Raises:
            SettingRefused: two sources would commit the same partitions to one group.
        """
        if batch.first:
            self._find_groups()
            self._refuse_shared(batch)

    def done(self, batch: Batch, completed: Completed) -> None:
        self._put(batch)

    def idle(self) -> None:
        """Commit again what has not changed for long, so that the brokers do not forget it."""
        with self._changed:
            if self._newest is None and time.monotonic() - self._committed_s > REFRESH_AFTER_S:
                self._newest = self._committed
                self._changed.notify()

    def close(self) -> None:
        """Commit what is left, within some seconds. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _find_groups(self) -> None:
        """One group id on two clusters is two groups. Which cluster it is nobody is asked, unless
        sources with one group id connect in different ways.
        """
        for one in self._sources:
            group_id = str(one.chosen.group_id)
            ways = {id(o.requests) for o in self._sources if str(o.chosen.group_id) == group_id}
            cluster = "" if len(ways) == 1 else self._cluster_of(one.requests)
            self._groups[one.source.index] = (cluster, group_id)
            self._requests[cluster, group_id] = one.requests

    def _cluster_of(self, requests: TopicRequests) -> str:
        try:
            return requests.cluster_id()
        except ExactumError as error:  # the group is for onlookers: the query goes on
            logger.debug("%s: which cluster it reads is not known: %s", self._running, error)
            return requests.servers

    def _refuse_shared(self, batch: Batch) -> None:
        owners: dict[tuple[Group, str], str] = {}
        for one in self._sources:
            for topic in sorted(
                {topic for topic, _ in from_json(batch.offsets.end[one.source.index])}
            ):
                owner = owners.setdefault(
                    (self._groups[one.source.index], topic), one.chosen.source_id
                )
                if owner != one.chosen.source_id:
                    raise SettingRefused(
                        "GROUP_TWICE",
                        f"{self._running}: two sources read the topic {topic!r} with group_id="
                        f"{one.chosen.group_id!r}, so the group's offsets would mean now the one, "
                        "now the other. Give each its own group_id, or one of them "
                        "commit_offsets=False. Nothing of this batch was written.",
                    )

    def _put(self, batch: Batch) -> None:
        groups: dict[Group, Offsets] = {}
        ends = batch.offsets.end
        for one in self._sources:
            group = groups.setdefault(self._groups[one.source.index], {})
            own = from_json(ends[one.source.index]) if one.source.index < len(ends) else {}
            for partition, offset in own.items():
                # A frame that is joined with itself is read by two streams: the slower one counts.
                group[partition] = min(offset, group.get(partition, offset))
        if any(groups.values()):
            with self._changed:
                self._newest = {group: found for group, found in groups.items() if found}
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None or self._closing)
                newest, self._newest = self._newest, None
                if newest is None:
                    return
            self._commit(newest)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, PAUSE_S)

    def _commit(self, groups: dict[Group, Offsets]) -> None:
        for group, offsets in groups.items():
            try:
                self._requests[group].commit_group(group[1], offsets)
            except Exception as error:  # noqa: BLE001  (a thread has nobody else to tell)
                self._warn_once(group, error)
            else:
                self._committed, self._committed_s = groups, time.monotonic()
                self._told = {(own, kind) for own, kind in self._told if own != group}

    def _warn_once(self, group: Group, error: Exception) -> None:
        kind = (group, type(error).__name__)
        if kind in self._told:
            return
        self._told.add(kind)
        logger.warning(
            "%s: its offsets could not be committed to the group %r: %s The query is not "
            "affected; it is tried again with the next epoch.",
            self._running,
            group[1],
            error,
        )
