"""What decides which records a topic takes: its partitions and a few of its settings, as the
brokers tell them.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from exactum.errors import Unavailable
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.records import record_size
from exactum.kafka.settings.settings import Settings

log = logging.getLogger("exactum.kafka")

CONFIGS = ("max.message.bytes", "cleanup.policy", "compression.type")
"""The topic's settings that count."""
TIMEOUT_S = 30.0
"""How long the brokers may take for one answer."""
KNOWN_AGE_MAX_S = 60.0
"""How long what was learned of a topic counts."""
UNKNOWN_AGE_MAX_S = 10.0
"""How long a topic counts as missing."""
_OF_THE_TOPIC = frozenset({KafkaFailure.MISSING, KafkaFailure.TOPIC_DENIED, KafkaFailure.TOPIC})
"""What says that this topic cannot be had, not that the brokers cannot answer."""
UNKNOWN_WAIT_S = 3.0
"""A topic made a moment ago is not known to every broker yet: it is asked for so long before it
counts as missing.
"""
WAITS_EVERY_S = 60.0
"""After a wait in vain, other missing topics are asked for twice only, for so long: rows may
name any number.
"""
PAUSE_S = 0.25
_LOG_WARNING = 4
"""syslog's: nobody polls this client, so its log would go to the terminal."""
TOPICS_MAX = 10_000
"""Most topics that are remembered; rows may name any number."""


@dataclass(frozen=True)
class TopicFacts:
    """``batch_bytes_max``: the largest batch it takes; None where this user may not read the
    topic's settings.

    ``keeps_compression``: the broker stores a batch as the producer compressed it.
    ``trouble``: why nothing can be written to it, to be read after its name; empty where something
    can.
    """

    partitions: int
    batch_bytes_max: int | None = None
    compacted: bool = False
    keeps_compression: bool = False
    trouble: str = ""


FactsOf = Callable[[Iterable[str]], Mapping[str, TopicFacts]]


def facts_of(partitions: int, configs: Mapping[str, str | None]) -> TopicFacts:
    """``configs``: those of ``CONFIGS`` that may be read."""
    limit = configs.get("max.message.bytes")
    bytes_max = None if limit is None else int(limit)
    if bytes_max is not None and configs.get("compression.type") not in (
        "producer",
        "uncompressed",
        None,
    ):
        bytes_max = record_size.after_recompression(bytes_max)
    policies = (configs.get("cleanup.policy") or "").replace(" ", "").split(",")
    return TopicFacts(
        partitions, bytes_max, "compact" in policies, configs.get("compression.type") == "producer"
    )


class TopicBook:
    """What one process knows of the topics that rows name; asks the brokers for the rest. Safe to
    use from threads.
    """

    def __init__(self, bootstrap_servers: str, settings: Settings) -> None:
        """Connects with the first question."""
        self._servers = bootstrap_servers
        self._settings = settings
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._known: dict[str, tuple[float, TopicFacts]] = {}
        self._in_vain_s = float("-inf")

    def facts(
        self, names: Iterable[str], known_age_max_s: float = KNOWN_AGE_MAX_S
    ) -> Mapping[str, TopicFacts]:
        """Those of each topic. The names are legal ones.

        Raises:
            Unavailable: the brokers did not answer.
        """
        with self._lock:
            now_s = time.monotonic()
            found: dict[str, TopicFacts] = {}
            asked = []
            for name in names:
                learned_s, facts = self._known.get(name, (float("-inf"), TopicFacts(0)))
                if now_s - learned_s < (UNKNOWN_AGE_MAX_S if facts.trouble else known_age_max_s):
                    found[name] = facts
                else:
                    asked.append(name)
            if asked:
                learned = self._learned(asked)
                self._remember(learned)
                found |= learned
            return found

    def batch_bytes_least(self) -> int:
        """The smallest of the limits that are known."""
        limits = [
            facts.batch_bytes_max
            for _, facts in self._known.copy().values()
            if facts.batch_bytes_max is not None
        ]
        return min(limits, default=sys.maxsize)

    def close(self) -> None:
        """Let the connections go. It can be asked again, and connects anew."""
        with self._lock:
            self._admin = None  # it has no end of its own: it ends with its last reference

    def _remember(self, learned: Mapping[str, TopicFacts]) -> None:
        now_s = time.monotonic()
        for name, facts in learned.items():
            self._known.pop(name, None)
            self._known[name] = now_s, facts
        while len(self._known) > TOPICS_MAX:
            del self._known[next(iter(self._known))]

    def _learned(self, names: list[str]) -> dict[str, TopicFacts]:
        if self._admin is None:
            own = {"bootstrap.servers": self._servers, "log_level": str(_LOG_WARNING)}
            self._admin = AdminClient({**own, **dict(self._settings)}, logger=log)
        found = self._described(self._admin, names)
        configs = self._configs(
            self._admin, [name for name, facts in found.items() if not facts.trouble]
        )
        return found | {
            name: facts_of(found[name].partitions, settings) for name, settings in configs.items()
        }

    def _described(self, admin: AdminClient, names: list[str]) -> dict[str, TopicFacts]:
        """The partitions of each topic; trouble for those that are missing, the first time for
        ``UNKNOWN_WAIT_S``.
        """
        found: dict[str, TopicFacts] = {}
        rested = time.monotonic() - self._in_vain_s > WAITS_EVERY_S
        missing, end_s = names, time.monotonic() + (UNKNOWN_WAIT_S if rested else PAUSE_S / 2)
        while missing:
            asked = admin.describe_topics(TopicCollection(missing), request_timeout=TIMEOUT_S)
            missing = []
            for name, future in asked.items():
                answer = self._answer(name, future)
                if isinstance(answer, KafkaError):
                    failure = failure_of(answer.code())
                    found[name] = TopicFacts(0, trouble=self._trouble(failure))
                    if failure is KafkaFailure.MISSING and name not in self._known:
                        missing.append(name)
                else:
                    found[name] = TopicFacts(
                        len(answer.partitions),
                        trouble="is Kafka's own topic" if answer.is_internal else "",
                    )
            if missing and time.monotonic() > end_s:
                self._in_vain_s = time.monotonic()
                break
            if missing:
                time.sleep(PAUSE_S)
        return found

    def _configs(self, admin: AdminClient, names: list[str]) -> dict[str, dict[str, str | None]]:
        """The settings of each topic, none where this user may not read them."""
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found: dict[str, dict[str, str | None]] = {}
        for resource, future in admin.describe_configs(
            resources, request_timeout=TIMEOUT_S
        ).items():
            answer = self._answer(resource.name, future)
            entries = {} if isinstance(answer, KafkaError) else answer
            found[resource.name] = {
                name: entries[name].value for name in CONFIGS if name in entries
            }
        return found

    def _answer(self, name: str, future: Future[Any]) -> Any:
        """What was answered, or one of ``_OF_THE_TOPIC``."""
        try:
            return future.result(TIMEOUT_S + 1)
        except (KafkaException, FutureTimeoutError) as error:
            reason = error.args[0] if isinstance(error, KafkaException) else None
            if reason is not None and failure_of(reason.code()) in _OF_THE_TOPIC:
                return reason
            raise Unavailable(
                f"{self._servers} did not tell of the topic {name!r} that a row names: "
                f"{reason.str() if reason is not None else 'no answer'}. Nothing of the epoch is "
                "visible; start the query again."
            ) from error

    def _trouble(self, failure: KafkaFailure) -> str:
        if failure is KafkaFailure.TOPIC_DENIED:
            return (
                f"does not exist at {self._servers}, or the user lacks DESCRIBE on it "
                "(docs/kafka.md lists the ACLs)"
            )
        return f"does not exist at {self._servers}, and exactum never creates topics"
