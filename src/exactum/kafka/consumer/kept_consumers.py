"""The consumers that one process keeps between tasks, so that each goes on where it stands."""

from __future__ import annotations

import time
from collections.abc import Callable

from exactum.kafka.consumer.topic_consumer import TopicConsumer
from exactum.kafka.settings.settings import Settings

IDLE_MAX_S = 60.0
"""How long one is kept that nobody uses, as seen by the next task: Spark ends workers that have no
task for a minute."""

Make = Callable[[str, dict[str, str]], TopicConsumer]


class KeptConsumers:
    """By topic, the topic's id and settings. Used from one thread at a time.

    A topic that was made anew has another id, so nothing that was read ahead of the old one is
    taken for its.
    """

    def __init__(self, make: Make = TopicConsumer) -> None:
        self._make = make
        self._kept: dict[tuple[str, str | None, Settings], TopicConsumer] = {}

    def of(self, topic: str, topic_id: str | None, settings: Settings) -> TopicConsumer:
        """The one that is kept, or a new one.

        Raises:
            SettingRefused: librdkafka does not take a setting.
        """
        wanted = topic, topic_id, settings
        now_s = time.monotonic()
        for key, consumer in list(self._kept.items()):
            anew = key[0] == topic and key[2] == settings and key[1] != topic_id
            if key != wanted and (anew or now_s - consumer.used_s > IDLE_MAX_S):
                self._kept.pop(key).close()
        if wanted not in self._kept:
            self._kept[wanted] = self._make(topic, dict(settings))
        return self._kept[wanted]


kept_consumers = KeptConsumers()
"""Of this process: a task finds the consumers where the task before has left them."""
