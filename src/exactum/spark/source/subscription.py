"""Which topics and partitions a source of Spark's reads, from its options, and what of them is
there now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from exactum.errors import SettingRefused
from exactum.kafka.requests import TopicRequests, TopicSeen
from exactum.kafka.transaction import Partition


@dataclass(frozen=True)
class Subscription:
    """One of the three ways to name topics: by name, by partition, or by a pattern for the whole
    name.
    """

    topics: tuple[str, ...] = ()
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pattern: str | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> Subscription:
        """From the options of Spark's Kafka source (``subscribe``, ``assign``,
        ``subscribePattern``), in any case.
        """
        given = {name.lower(): value for name, value in options.items()}
        if "assign" in given:
            cells = json.loads(given["assign"])
            return Subscription(
                assigned={topic: tuple(indexes) for topic, indexes in cells.items()}
            )
        if "subscribepattern" in given:
            return Subscription(pattern=given["subscribepattern"])
        names = [name.strip() for name in given.get("subscribe", "").split(",")]
        return Subscription(topics=tuple(name for name in names if name))

    def named(self) -> tuple[str, ...]:
        """The topics that are called by name; none where there is a pattern."""
        return self.topics or tuple(self.assigned)

    def names(self) -> re.Pattern[str]:
        """For the whole names of the topics that are read.

        Raises:
            SettingRefused: a pattern that Java knows and Python does not.
        """
        try:
            return re.compile(self.pattern or "|".join(map(re.escape, self.named())))
        except re.error as error:
            raise SettingRefused(
                "SOURCE_ARGUMENT",
                f"subscribePattern={self.pattern!r} is no pattern that Python reads ({error}), and "
                "exactum finds the topics with it.\nWrite it so that Java and Python both read it.",
            ) from None

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is read, if it is there."""
        return self.names().fullmatch(topic) is not None

    def seen(self, requests: TopicRequests) -> dict[str, TopicSeen]:
        """The topics that are there now. A named one that does not exist is left out, as internal
        ones of a pattern.

        Raises:
            Unavailable, SettingRefused: see ``names`` and ``TopicRequests.describe``.
        """
        if self.pattern is None:
            return requests.describe(self.named())
        matching = list(filter(self.names().fullmatch, requests.topic_names()))
        return {
            name: topic for name, topic in requests.describe(matching).items() if not topic.internal
        }

    def partitions(self, seen: Mapping[str, TopicSeen]) -> list[Partition]:
        """The partitions of the topics in ``seen`` that are read."""
        if self.assigned:
            return [(t, i) for t, indexes in self.assigned.items() if t in seen for i in indexes]
        return [
            (name, index)
            for name, topic in sorted(seen.items())
            for index in range(topic.partitions)
        ]

    def __str__(self) -> str:
        return f"topics matching {self.pattern!r}" if self.pattern else ", ".join(self.named())
