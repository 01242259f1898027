"""What the driver asks a cluster about the topics that a query reads, and tells it: offsets, topic
ids, groups.

Through librdkafka: its admin client for topics, consumers that never join for groups. Every request
is idempotent and bounded by ``timeout_ms``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import DENIALS, KafkaFailure, certificate_refused, failure_of
from exactum.kafka.requests.group_committer import GroupCommitter
from exactum.kafka.requests.listed_offsets import listed_offsets
from exactum.kafka.settings.listener import mismatch
from exactum.kafka.transaction import Partition

if TYPE_CHECKING:
    from exactum.kafka.requests.open_transactions import Holder

TIMEOUT_MS = 10_000
NO_TOPIC_ID = "A" * 22
"""How a topic without an id looks: brokers before 2.8 have none."""

EARLIEST, LATEST = "earliest", "latest"

_REFUSED = DENIALS | {KafkaFailure.LOGIN}
_NOT_READY = frozenset({KafkaFailure.BUSY, KafkaFailure.MISSING})
"""What a group's coordinator answers while it starts, moves, or lags behind, also behind what
topics there are.
"""
RETRY_PAUSE_S = 0.1
LOOK_S = 1.0
"""How long a consumer looks for its group's offsets before it is asked what keeps it."""
CLIENT_ERRORS_MAX = 8
"""How many of librdkafka's own errors are kept for the message of ours."""


@dataclass(frozen=True)
class TopicSeen:
    """A topic as the cluster describes it. ``topic_id`` is None on brokers before Kafka 2.8."""

    topic_id: str | None
    partitions: int
    internal: bool = False


class TopicRequests:
    """One admin client, and a consumer for each group that offsets are committed to. Safe to use
    from threads.
    """

    def __init__(
        self, settings: Mapping[str, str], where: str, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Make the client; it connects with the first request.

        Raises:
            SettingRefused: librdkafka does not know a setting, or cannot use its value.
        """
        self._where = where
        self._servers = settings.get("bootstrap.servers", "")
        self._timeout_s = timeout_ms / 1000
        # Not a method of self: a client that is part of a cycle would be ended whenever the garbage
        # is collected.
        self._client_errors = client_errors = deque[str](maxlen=CLIENT_ERRORS_MAX)
        quiet = {
            "log_level": 0,
            "error_cb": lambda error: client_errors.append(_text(error)),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 1000,
        }
        self._given = dict(settings)
        self._settings = {**quiet, **settings}
        self._committers: dict[str, GroupCommitter] = {}
        self._closing = threading.Lock()
        self._admin: AdminClient | None
        try:
            self._admin = AdminClient(self._settings)
        except (KafkaException, ValueError, TypeError) as error:
            reason = error.args[0] if error.args else error
            raise SettingRefused(
                "KAFKA_SETTING", f"{where}: librdkafka refuses its settings: {_text(reason)}."
            ) from None

    def close(self) -> None:
        """Let go of the clients. Requests under way still have their answers; later ones raise.
        Idempotent.
        """
        with self._closing:
            self._admin = None
        for committer in self._committers.values():
            committer.close()

    @property
    def servers(self) -> str:
        """The addresses with which it was made."""
        return self._servers

    def cluster_id(self) -> str:
        """The id of the cluster, which is the same whichever of its brokers is asked.

        Raises:
            Unavailable: no answer in time.
        """
        asked = self._client().describe_cluster(request_timeout=self._timeout_s)
        return str(self._answer("ask for the cluster's id", asked).cluster_id)

    def topic_names(self) -> list[str]:
        """All topics that this user may see, internal ones too.

        Raises:
            Unavailable: no answer in time.
        """
        admin = self._client()
        try:
            return sorted(admin.list_topics(timeout=self._timeout_s).topics)
        except KafkaException as error:
            raise self._failed("list topics", error.args[0]) from None

    def describe(self, topics: Iterable[str]) -> dict[str, TopicSeen]:
        """The topics by name; one that does not exist is left out.

        Raises:
            Unavailable: no answer in time.
            SettingRefused: DESCRIBE on a topic is not granted.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        admin = self._client()
        asked = admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        found: dict[str, TopicSeen] = {}
        for name, future in asked.items():
            answer = self._answer(f"describe topic {name!r}", future)
            if answer is not None:
                topic_id = str(answer.topic_id)
                known = topic_id if topic_id != NO_TOPIC_ID else None
                found[name] = TopicSeen(known, len(answer.partitions), bool(answer.is_internal))
        return found

    def offsets(
        self, partitions: Iterable[Partition], at: str | int, *, read_committed: bool
    ) -> dict[Partition, int]:
        """The first offset (``EARLIEST``), the end (``LATEST``), or the first record at or after a
        time in ms.

        The end is the last stable offset (``read_committed``) or the high watermark. A partition
        that has no record at or after the time is left out; so is one that does not exist.

        Raises:
            Unavailable, SettingRefused: as ``describe``.
        """
        wanted = {EARLIEST: OffsetSpec.earliest, LATEST: OffsetSpec.latest}
        spec = wanted[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        specs = dict.fromkeys(partitions, spec)
        answers = listed_offsets(
            self._client(), specs, self._timeout_s, read_committed=read_committed
        )
        found: dict[Partition, int] = {}
        for (topic, index), answer in answers.items():
            if isinstance(answer, int):
                if answer >= 0:
                    found[topic, index] = answer
            elif failure_of(answer.code()) is not KafkaFailure.MISSING:
                raise self._failed(f"list the offsets of {topic}-{index}", answer)
        return found

    def holders(self, last_stable_offsets: Mapping[Partition, int]) -> dict[Partition, Holder]:
        """Whose open transactions begin at these last stable offsets; left out where nobody's does.

        Raises:
            Unavailable, SettingRefused: as ``open_transactions.holders``.
        """
        from exactum.kafka.requests import open_transactions  # its client takes long to import

        return open_transactions.holders(self._given, last_stable_offsets, self._where)

    def group_offsets(self, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What the consumer group has committed; partitions without an offset are left out.

        Asked as a consumer of the group that never joins it: librdkafka's admin client ends the
        process where the group's coordinator is not ready (librdkafka issue 5040).

        Raises:
            Unavailable, SettingRefused: as ``describe``, with READ on the group.
        """
        cells = [TopicPartition(topic, index) for topic, index in partitions]
        consumer = Consumer({**self._settings, "group.id": group_id, "enable.auto.commit": False})
        try:
            answer = self._settled(
                f"read the offsets of group {group_id!r}", lambda: _committed(consumer, cells)
            )
        finally:
            consumer.close()
        return {(c.topic, c.partition): int(c.offset) for c in answer if c.offset >= 0}

    def commit_group(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set the group's offsets. The group must have no active members.

        Raises:
            SettingRefused: the coordinator does not take them: the group has members, or READ on it
                is not granted.
            Unavailable: no answer in time.
        """
        cells = [
            TopicPartition(topic, index, offset)
            for (topic, index), offset in sorted(offsets.items())
        ]
        with self._closing:
            self._client()
            committer = self._committers.setdefault(
                group_id, GroupCommitter(self._settings, group_id)
            )
        self._settled(
            f"commit offsets of group {group_id!r}",
            lambda: _checked(committer.commit(cells, self._timeout_s)),
        )

    def _client(self) -> AdminClient:
        """The client, for a caller to keep until it has its answers.

        Raises:
            Unavailable: it is closed.
        """
        admin = self._admin
        if admin is None:
            raise Unavailable(f"{self._where}: the connections to {self._servers} are closed.")
        return admin

    def _settled(self, what: str, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """The answer of a group's coordinator, asked again while it is not ready."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                reason = error.args[0]
            if failure_of(reason.code()) not in _NOT_READY or time.monotonic() > deadline_s:
                raise self._failed(what, reason) from None
            time.sleep(RETRY_PAUSE_S)

    def _answer(self, what: str, future: Future[Any]) -> Any:
        """The future's result; None where the topic is missing."""
        try:
            return future.result(self._timeout_s + 1)
        except KafkaException as error:
            if failure_of(error.args[0].code()) is KafkaFailure.MISSING:
                return None
            raise self._failed(what, error.args[0]) from None
        except FutureTimeoutError:
            raise self._failed(what, None) from None

    def _failed(self, what: str, error: Any) -> SettingRefused | Unavailable:
        admin = self._admin
        if admin is not None:
            admin.poll(0)  # lets librdkafka tell why it cannot connect
        reason = _text(error) if error is not None else "no answer"
        failure = failure_of(None if error is None else error.code())
        if failure is KafkaFailure.MEMBERS:
            return SettingRefused(
                "KAFKA_GROUP_MEMBERS",
                f"{self._where}: could not {what}: the group has members, who alone may set its "
                f"offsets ({reason}). Stop them, or give the query another group_id.",
            )
        client_errors = list(self._client_errors)
        # A refused login comes first, and then only that no broker can be reached.
        refused = [
            t for t in client_errors if "authentication" in t.lower() or certificate_refused(t)
        ]
        also = f" ({(refused or client_errors)[-1]})" if client_errors else ""
        if failure in _REFUSED or refused:
            code = "KAFKA_LOGIN" if refused or failure is KafkaFailure.LOGIN else "KAFKA_ACCESS"
            return SettingRefused(
                code,
                f"{self._where}: the cluster at {self._servers} does not let this user {what}: "
                f"{reason}{also}. Look at the security settings and at the ACLs (docs/source.md "
                "lists them).",
            )
        return mismatch(self._given, self._where) or Unavailable(
            f"{self._where}: could not {what} at {self._servers} within {self._timeout_s:.0f} s: "
            f"{reason}{also}. Is the broker running, and is the address right?"
        )


def _committed(consumer: Consumer, cells: list[TopicPartition]) -> list[TopicPartition]:
    """
    Raises:
        KafkaException: no answer within ``LOOK_S``; or that the user is denied: librdkafka goes on
            asking for the group's coordinator then, and tells the reason only to who polls.
    """
    try:
        return _checked(consumer.committed(cells, timeout=LOOK_S))
    except KafkaException as error:
        client_errors = consumer.poll(0)
        reason = None if client_errors is None else client_errors.error()
        denied = reason is not None and failure_of(reason.code()) in _REFUSED
        raise (KafkaException(reason) if denied else error) from None


def _checked(cells: list[TopicPartition]) -> list[TopicPartition]:
    """
    Raises:
        KafkaException: one of the partitions has an error.
    """
    for cell in cells:
        if cell.error is not None:
            raise KafkaException(cell.error)
    return cells


def _text(error: Any) -> str:
    return f"{error.name()}: {error.str()}" if isinstance(error, KafkaError) else str(error)
