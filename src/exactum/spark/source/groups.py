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
from dataclasses import dataclass, field

from exactum.checkpoint.offset_log import Offsets
from exactum.errors import SettingRefused
from exactum.kafka.requests import BrokerRequests
from exactum.spark.query import Run
from exactum.spark.source.watched_source import WatchedSource

logger = logging.getLogger("exactum")

PAUSE_S = 1.0
"""Between two commits of a busy query."""
REFRESH_AFTER_S = 3600.0
"""A quiet query commits again after this long: brokers forget offsets after
offsets.retention.minutes (7 days).
"""


@dataclass(eq=False)
class _Group:
    """A consumer group: where the newest complete epoch ends, what was committed last, and when;
    ``reported`` are the kinds of failures that were logged since.
    """

    group_id: str
    requests: BrokerRequests
    newest: Offsets = field(default_factory=dict)
    committed: Offsets = field(default_factory=dict)
    committed_s: float = field(default_factory=time.monotonic)
    reported: set[str] = field(default_factory=set)


class GroupOffsets:
    """Commits for all sources of one run that have a group id. ``tend`` is called by one thread,
    the others by the query's; ``close`` in any.
    """

    trouble = "how far it is is not committed to its groups"

    def __init__(self, run: Run, sources: Sequence[WatchedSource]) -> None:
        self._run = run
        self._sources = [source for source in sources if source.chosen.group_id]
        self._groups: dict[int, _Group] = {}  # by source index; known from the first batch on
        self._committing = threading.Lock()

    @property
    def every_s(self) -> float:
        return PAUSE_S

    def begin(self, ends: Mapping[int, Offsets]) -> None:
        """The run's first batch, with where it ends in each source. Nothing is committed yet:
        whether this run may go on from these offsets is not decided, and a start that is refused,
        from an old copy of the checkpoint, must not move the group back.

        Raises:
            SettingRefused: two sources would commit the same partitions to one group, or connect
                in different ways.
        """
        known: dict[str, _Group] = {}
        for one in self._sources:
            name = str(one.chosen.group_id)
            group = known.setdefault(name, _Group(name, one.requests))
            self._groups[one.source.index] = group
        self._refuse_shared(ends)

    def done(self, ends: Mapping[int, Offsets]) -> None:
        """A batch that ends there stands in every sink."""
        newest: dict[_Group, Offsets] = {}
        for index, group in self._groups.items():
            own = newest.setdefault(group, {})
            for partition, offset in ends[index].items():
                # A frame that is joined with itself is read by two streams: the slower one counts.
                own[partition] = min(offset, own.get(partition, offset))
        for group, offsets in newest.items():
            group.newest = offsets

    def tend(self) -> None:
        """Commit what is not committed yet, and what has not changed for long, so that the brokers
        do not forget it.
        """
        with self._committing:
            for group in dict.fromkeys(self._groups.values()):
                offsets = group.newest
                is_old = time.monotonic() - group.committed_s > REFRESH_AFTER_S
                if offsets and (is_old or offsets != group.committed):
                    self._commit(group, offsets)

    def close(self) -> None:
        """Commit what is left, within the client's time. Idempotent."""
        self.tend()

    def _refuse_shared(self, ends: Mapping[int, Offsets]) -> None:
        owners: dict[tuple[str, str], str] = {}
        for one in self._sources:
            index, own, group = one.source.index, one.chosen.source_id, str(one.chosen.group_id)
            if self._groups[index].requests is not one.requests:
                raise SettingRefused(
                    "GROUP_TWICE",
                    f"{self._run}: two sources with group_id={group!r} connect to their brokers in "
                    "different ways. Give each its own group_id, or one of them "
                    "commit_offsets=False. Nothing of this batch was written.",
                )
            for topic in sorted({topic for topic, _ in ends[index]}):
                if owners.setdefault((group, topic), own) != own:
                    raise SettingRefused(
                        "GROUP_TWICE",
                        f"{self._run}: two sources read the topic {topic!r} with "
                        f"group_id={group!r}, so the group's offsets would mean now the one, now "
                        "the other. Give each its own group_id, or one of them "
                        "commit_offsets=False. Nothing of this batch was written.",
                    )

    def _commit(self, group: _Group, offsets: Offsets) -> None:
        try:
            group.requests.commit_group(group.group_id, offsets)
        except Exception as error:  # noqa: BLE001  (the group is for onlookers)
            kind = type(error).__name__
            if kind not in group.reported:
                group.reported.add(kind)
                logger.warning(
                    "%s: its offsets could not be committed to the group %r: %s The query is not "
                    "affected; it is tried again.",
                    self._run,
                    group.group_id,
                    error,
                )
        else:
            group.committed, group.committed_s = offsets, time.monotonic()
            group.reported.clear()
