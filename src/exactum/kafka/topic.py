"""A topic: what it may be called, which one it is, and what decides which records it takes, as the
brokers tell it.

Workers import this module, so it imports a client only where one is asked.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from exactum.errors import Unavailable
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.records import after_recompression
from exactum.kafka.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


CHARACTERS_MAX = 249
KAFKAS_OWN = (
    b"__consumer_offsets",
    b"__transaction_state",
    b"__share_group_state",
    b"__cluster_metadata",
)
LEGAL = re.compile(rb"[a-zA-Z0-9._-]*")


def name_trouble(name: bytes) -> str:
    """Why no topic of a user can have this name, to be read after it; empty where one can. As every
    broker checks it (org.apache.kafka.common.internals.Topic).
    """
    if not name:
        return "is empty"
    if not LEGAL.fullmatch(name):
        return (
            "has other characters than a topic's name may have: A to Z, a to z, 0 to 9, '.', '_' "
            "and '-'"
        )
    if name in (b".", b".."):
        return "may not be a topic's name"
    if len(name) > CHARACTERS_MAX:
        return f"has {len(name)} characters, and a topic's name has at most {CHARACTERS_MAX}"
    return "is Kafka's own topic" if name in KAFKAS_OWN else ""


@dataclass(frozen=True)
class TopicIdentity:
    """The ids of a topic and of its cluster: None where the brokers do not tell (topic ids came
    with Kafka 2.8).
    """

    topic_id: str | None
    cluster_id: str | None

    def is_another(self, than: TopicIdentity) -> bool:
        """True where an id that is known of both differs."""
        pairs = ((self.topic_id, than.topic_id), (self.cluster_id, than.cluster_id))
        return any(None not in pair and pair[0] != pair[1] for pair in pairs)

    def __str__(self) -> str:
        return f"topic id {self.topic_id or 'unknown'}, cluster {self.cluster_id or 'unknown'}"


log = logging.getLogger("exactum.kafka")

T = TypeVar("T")

CONFIGS = ("max.message.bytes", "cleanup.policy", "compression.type")
"""The topic's settings that count."""
TIMEOUT_S = 30.0
"""How long the brokers may take for one answer."""
PAUSE_S = 1.0
"""After so long a topic that is missing is asked for once more: one that was made a moment ago is
not known to every broker yet.
"""
TOPICS_MAX = 10_000
"""When so many are remembered, all are forgotten: rows may name any number."""
_LOG_WARNING = 4
"""syslog's: nobody polls this client, so its log would go to the terminal."""


@dataclass(frozen=True)
class TopicFacts:
    """``batch_bytes_max``: the largest batch it takes; None where this user may not read the
    topic's settings.

    ``trouble``: why nothing can be written to it, to be read after its name; empty where something
    can.
    """

    partitions: int
    batch_bytes_max: int | None = None
    compacted: bool = False
    trouble: str = ""


def facts_of(partitions: int, configs: Mapping[str, str | None]) -> TopicFacts:
    """``configs``: those of ``CONFIGS`` that may be read."""
    limit = configs.get("max.message.bytes")
    bytes_max = None if limit is None else int(limit)
    kept = ("producer", "uncompressed", None)
    if bytes_max is not None and configs.get("compression.type") not in kept:
        bytes_max = after_recompression(bytes_max)
    policies = (configs.get("cleanup.policy") or "").replace(" ", "").split(",")
    return TopicFacts(partitions, bytes_max, "compact" in policies)


def narrower(topics: Mapping[str, TopicFacts], batch_bytes: int) -> dict[str, int]:
    """The largest batch of those topics that take less than ``batch_bytes``."""
    return {
        name: facts.batch_bytes_max
        for name, facts in topics.items()
        if facts.batch_bytes_max is not None and facts.batch_bytes_max < batch_bytes
    }


class TopicBook:
    """What the tasks of one process know of their topics, from the start of a batch on. Safe to use
    from threads.
    """

    def __init__(self, bootstrap_servers: str, settings: Settings) -> None:
        """Connects with the first question."""
        self._servers = bootstrap_servers
        self._settings = settings
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._write_job = -1
        self._known: dict[str, TopicFacts] = {}
        self._waited_for: set[str] = set()

    def begin(self, write_job: int, known: Mapping[str, TopicFacts]) -> None:
        """A task begins; the first one of a write job in this process knows ``known`` alone."""
        with self._lock:
            if write_job != self._write_job:
                self._write_job, self._known = write_job, dict(known)

    def facts(self, names: Iterable[str], *, anew: bool = False) -> Mapping[str, TopicFacts]:
        """Those of each topic. The names are legal ones. ``anew``: partitions may have been added.

        Raises:
            Unavailable: the brokers did not answer.
        """
        with self._lock:
            wanted = list(names)
            if len(self._known) > TOPICS_MAX:
                self._known = {}
                self._waited_for = set()
            new = [name for name in wanted if anew or name not in self._known]
            self._learn(new)
            missing = {name for name in new if self._known[name].partitions == 0}
            if missing := missing - self._waited_for:
                time.sleep(PAUSE_S)
                self._learn(missing)
                self._waited_for |= missing
            return {name: self._known[name] for name in wanted}

    def narrower(self, batch_bytes: int) -> dict[str, int]:
        """See the function of this name: of all topics that are known."""
        return narrower(self._known, batch_bytes)

    def close(self) -> None:
        """Let the connections go. It can be asked again, and connects anew."""
        with self._lock:
            self._admin = None  # it has no end of its own: it ends with its last reference

    def _learn(self, names: Collection[str]) -> None:
        if not names:
            return
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        if self._admin is None:
            own = {"bootstrap.servers": self._servers, "log_level": str(_LOG_WARNING)}
            self._admin = AdminClient({**own, **dict(self._settings)}, logger=log)
        topics = self._admin.describe_topics(
            TopicCollection(list(names)), request_timeout=TIMEOUT_S
        )
        configs = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in topics],
            request_timeout=TIMEOUT_S,
        )
        entries = {
            resource.name: self._answer(resource.name, future) or {}
            for resource, future in configs.items()
        }
        learned: dict[str, TopicFacts] = {}
        for name, future in topics.items():
            topic = self._answer(name, future)
            if topic is None:
                trouble = f"does not exist at {self._servers}, or the user lacks DESCRIBE on it"
                learned[name] = TopicFacts(0, trouble=trouble)
            elif topic.is_internal:
                learned[name] = TopicFacts(len(topic.partitions), trouble="is Kafka's own topic")
            else:
                values = {key: entries[name][key].value for key in CONFIGS if key in entries[name]}
                learned[name] = facts_of(len(topic.partitions), values)
        self._known = {**self._known, **learned}

    def _answer(self, name: str, future: Future[T]) -> T | None:
        """None where the topic is missing, or this user may not see what was asked for."""
        from confluent_kafka import KafkaException

        try:
            return future.result(TIMEOUT_S + 1)
        except (KafkaException, FutureTimeoutError) as error:
            reason = error.args[0] if isinstance(error, KafkaException) else None
            code = None if reason is None else reason.code()
            if failure_of(code) in (KafkaFailure.MISSING, KafkaFailure.DENIED):
                return None
            raise Unavailable(
                f"{self._servers} did not tell of the topic {name!r} that a row names: "
                f"{'no answer' if reason is None else reason.str()}. Nothing of the epoch is "
                "visible; start the query again."
            ) from error
