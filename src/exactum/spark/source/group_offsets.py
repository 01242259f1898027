"""Commits an epoch's end offsets to a consumer group, so that lag tools see how far a query is.

For onlookers only: the query goes by its checkpoint. It happens after the epoch stands in every
sink, by the run's housekeeping and with the newest offsets alone, so no epoch waits for it and the
group is never ahead of the sinks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.errors import ExactumError, SettingRefused
from exactum.kafka.requests import TopicRequests
from exactum.spark.epoch_listener import Batch
from exactum.spark.live import RunningSource
from exactum.spark.query import Run
from exactum.spark.source.source_options import SourceOptions

logger = logging.getLogger("exactum")

PAUSE_S = 1.0
"""Between two commits of a busy query."""
REFRESH_AFTER_S = 3600.0
"""A quiet query commits again after this long: brokers forget offsets after
offsets.retention.minutes (7 days).
"""

Group = tuple[str, str]
"""A consumer group: its cluster, and its id there."""


@dataclass(frozen=True)
class CommittedSource:
    """A source whose offsets go to ``chosen.group_id``."""

    source: RunningSource
    chosen: SourceOptions
    requests: TopicRequests


class GroupOffsets:
    """Commits for all sources of one run that have a group id. ``tend`` is called by one thread,
    the others by the query's; ``close`` in any.
    """

    trouble = "how far it is is not committed to its groups"

    def __init__(self, run: Run, sources: Sequence[CommittedSource]) -> None:
        self._run = run
        self._sources = tuple(sources)
        self._requests: dict[Group, TopicRequests] = {}
        self._groups: dict[int, Group] = {}  # by source index; known from the first batch on
        self._newest: dict[Group, Offsets] = {}
        self._committed: dict[Group, Offsets] = {}
        self._committed_s = time.monotonic()
        self._changing, self._committing = threading.Lock(), threading.Lock()
        self._told: set[tuple[Group, str]] = set()

    @property
    def every_s(self) -> float:
        return PAUSE_S

    def begin(self, batch: Batch) -> None:
        """The run's first batch. Nothing is committed yet: whether this run may go on from these
        offsets is not decided, and a start that is refused, from an old copy of the checkpoint,
        must not move the group back.

        Raises:
            SettingRefused: two sources would commit the same partitions to one group.
        """
        self._find_groups()
        self._refuse_shared(batch)

    def done(self, batch: Batch) -> None:
        """The batch stands in every sink."""
        self._put(batch)

    def tend(self) -> None:
        """Commit what is new, and what has not changed for long, so that the brokers do not forget
        it.
        """
        with self._committing:
            with self._changing:
                newest, self._newest = self._newest, {}
            if not newest and time.monotonic() - self._committed_s > REFRESH_AFTER_S:
                newest = self._committed
            self._commit(newest)

    def close(self) -> None:
        """Commit what is left, within the client's time. Idempotent."""
        self.tend()

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
            logger.debug("%s: which cluster it reads is not known: %s", self._run, error)
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
                        f"{self._run}: two sources read the topic {topic!r} with group_id="
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
        with self._changing:
            self._newest = {group: found for group, found in groups.items() if found}

    def _commit(self, groups: Mapping[Group, Offsets]) -> None:
        for group, offsets in groups.items():
            try:
                self._requests[group].commit_group(group[1], offsets)
            except Exception as error:  # noqa: BLE001  (the group is for onlookers)
                self._warn_once(group, error)
            else:
                self._committed[group], self._committed_s = offsets, time.monotonic()
                self._told = {(own, kind) for own, kind in self._told if own != group}

    def _warn_once(self, group: Group, error: Exception) -> None:
        kind = (group, type(error).__name__)
        if kind in self._told:
            return
        self._told.add(kind)
        logger.warning(
            "%s: its offsets could not be committed to the group %r: %s The query is not "
            "affected; it is tried again with the next epoch.",
            self._run,
            group[1],
            error,
        )
