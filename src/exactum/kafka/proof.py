"""Whether a query can read from Kafka and write to it: a sink is opened as a start opens it, for a
query that nobody has; and what a start does not look at.

For ``exactum doctor``. Nothing here changes anything: the one request that could (EndTxn) names a
transaction that nobody has, and is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from exactum.errors import ExactumError, SettingRefused
from exactum.kafka.client import DescribeGroupsRequest, EndTxnRequest
from exactum.kafka.connection_settings import connected
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.requests import (
    END_TXN_VERSION_MAX,
    TRANSACTION_LOG,
    BrokerRequests,
    Patience,
    TopicSeen,
)
from exactum.kafka.routing import check
from exactum.kafka.transaction import KafkaScope
from exactum.problem import Problem, error, of_failure, ok, warning
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun

if TYPE_CHECKING:
    from exactum.kafka.sink import KafkaSink


ACL_READ = 3
"""``AclOperation.READ``, by the number with which a broker tells a user's rights on a group."""
NOBODY = 2**62
"""A producer id that no broker has given out."""
CONNECT_TIMEOUT_S = 5.0


class ClusterExamination(BrokerRequests):
    """The connections of one examination. What a cluster tells of itself beyond what a query asks:
    addresses and rights.
    """

    def places(self) -> dict[int, tuple[str, int]]:
        """Host and port that each node advertises: all that the cluster has named."""
        return self._router.connection().addresses()

    def is_missing(self, topic: str) -> bool:
        """Whether there is no such topic; False also where the user may not know."""
        (found,) = self._router.call(lambda admin: admin.describe_topics([topic]))
        return failure_of(found["error_code"]) is KafkaFailure.MISSING

    def group(self, group_id: str) -> tuple[str, int] | None:
        """The consumer group's state, as Kafka calls it, and how many members it has; None where
        the user may not read it.
        """

        def ask(node_id: int) -> tuple[str, int] | None:
            request = DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=True, min_version=3, max_version=5
            )
            (found,) = self._router.connection().ask(request, node_id).groups
            check(found.error_code)
            rights = found.authorized_operations
            may_read = rights is None or ACL_READ in rights
            return (found.group_state, len(found.members)) if may_read else None

        try:
            return self.of_group(group_id, ask)
        except SettingRefused:
            return None

    def may_end(self, transactional_id: str) -> bool:
        """Whether WRITE on the transactional id is granted: by asking to abort a transaction that
        nobody has, which is refused either way, for one reason or the other.
        """

        def request(ids: Sequence[str]) -> Any:
            return EndTxnRequest(
                transactional_id=ids[0],
                producer_id=NOBODY,
                producer_epoch=0,
                committed=False,
                max_version=END_TXN_VERSION_MAX,
            )

        code = self._one_each([transactional_id], request)[transactional_id]
        return failure_of(code) is not KafkaFailure.DENIED


# ---- proving ---------------------------------------------------------------------------------


PATIENCE = Patience(connect_ms=5_000, deadline_ms=10_000)
POLICY, RETENTION = "cleanup.policy", "retention.ms"
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
OF_A_TOPIC = (POLICY, RETENTION, MIN_ISR, UNCLEAN)
GROUP_LOG = "__consumer_offsets"
WITHOUT_MEMBERS = ("Empty", "Dead")
DOCTOR = "exactum doctor"


def prove_source(
    settings: Mapping[str, str],
    topics: Sequence[str],
    group: str | None,
    longest_outage_s: float | None,
) -> Iterator[Problem]:
    """``settings``: librdkafka's, to connect and log in."""
    with closing(ClusterExamination(settings, DOCTOR, PATIENCE)) as asked:
        if not (yield from _cluster(asked, settings)):
            return
        there = asked.topics(topics)
        for name in topics:
            yield from _input(asked, name, there.get(name), longest_outage_s)
        if group is not None:
            yield _group(asked, group)


def prove_sink(
    sink: KafkaSink, where: str, prefix: str, longest_outage_s: float | None
) -> Iterator[Problem]:
    settings = sink.client_settings
    with closing(ClusterExamination(settings, DOCTOR, PATIENCE)) as asked:
        if not (yield from _cluster(asked, settings)):
            return
        config: Mapping[str, str] = {}
        if sink.topic is not None and (topic := asked.topics([sink.topic]).get(sink.topic)):
            config = asked.configs("topic", sink.topic, OF_A_TOPIC)
            yield from _output(f"topic {sink.topic} (output)", topic, config)
        is_unused = asked.is_missing(TRANSACTION_LOG)
        if is_unused:  # to ask for the coordinator of an id would make Kafka's own topic
            yield ok(where, "This cluster has had no transaction yet: its rights are not tried.")
        guarantee = Guarantee.AT_LEAST_ONCE if is_unused else Guarantee.EXACTLY_ONCE
        run = QueryRun(str(uuid.uuid4()), new_incarnation(), guarantee)
        try:
            opened = sink.open(run, "exactum-doctor")
        except ExactumError as failure:
            yield of_failure(where, failure)
        else:
            opened.participant.close()
            yield ok(where, "It can be opened, as a start opens it.")
            yield _timeout(where, opened.timeout_ms or 0, longest_outage_s, config)
        if not is_unused:
            yield _right_to_end(asked, where, prefix)


def _cluster(
    asked: ClusterExamination, settings: Mapping[str, str]
) -> Generator[Problem, None, bool]:
    """Each broker without any other's answer, so that one that nobody can reach is named. Returns
    whether one can be.
    """
    where, places = f"Kafka {settings['bootstrap.servers']}", asked.places()
    reached = len(places)
    for node_id, (host, port) in sorted(places.items()):
        try:
            connected(f"{host}:{port}", CONNECT_TIMEOUT_S).close()
        except OSError as trouble:
            reached -= 1
            yield error(
                where,
                f"Broker {node_id} at {host}:{port} cannot be reached: {trouble}",
                "Clients connect to each broker at the address that it advertises, not only to the "
                "bootstrap servers. Without one of them nothing else was looked at.",
                "Start it, or correct its advertised.listeners for this network.",
            )
    if reached:
        yield ok(where, f"Cluster {asked.cluster_id()} answers.")
    return reached > 0


def _input(
    asked: ClusterExamination, name: str, topic: TopicSeen | None, outage_s: float | None
) -> Iterator[Problem]:
    where = f"topic {name} (input)"
    if topic is None:
        yield error(
            where,
            "It does not exist, or the user lacks DESCRIBE on it.",
            "exactum never creates topics.",
            "Create it with the number of partitions that you want, or grant DESCRIBE.",
        )
        return
    yield from _leaders(where, topic)
    if topic.may("READ"):
        yield ok(where, f"{topic.partitions} partitions; READ is granted.")
    else:
        yield _denied(where, "READ", "the topic")
    config = asked.configs("topic", name, OF_A_TOPIC)
    yield from _of_any_topic(where, config)
    kept_s = _shorter_kept(config, outage_s)
    if kept_s is not None:
        yield error(
            where,
            f"It keeps records for {_span(kept_s)}, and the longest outage is "
            f"{_span(outage_s or 0)}.",
            "Records that are deleted before they were read are lost; the query then refuses to "
            "go on over the gap.",
            f"Raise {RETENTION} above the longest outage plus the lag that is usual.",
        )


def _group(asked: ClusterExamination, group_id: str) -> Problem:
    """``group_id``: as ``read_kafka`` is given it."""
    where = f"group {group_id}"
    if asked.is_missing(GROUP_LOG):
        # To ask for the group's coordinator would make Kafka's own topic.
        text = "No group has committed anything on this cluster yet: it was not tried."
        return ok(where, text)
    found = asked.group(group_id)
    if found is None:
        return _denied(where, "READ", f"the group {group_id}")
    state, members = found
    if state not in WITHOUT_MEMBERS:
        return error(
            where,
            f"It has {members} members and is {state}.",
            "The members of a group alone may set its offsets, so that exactum's commits are "
            "refused; and both would read the same topics.",
            "Stop those consumers, or take a group of the query's own.",
        )
    return ok(where, "Its offsets can be read and committed; it has no members.")


def _output(where: str, topic: TopicSeen, config: Mapping[str, str]) -> Iterator[Problem]:
    yield from _leaders(where, topic)
    yield from _of_any_topic(where, config)
    least = int(config.get(MIN_ISR, "1"))
    factor = min((p.replicas for p in topic.each), default=0)
    in_sync = min((p.in_sync for p in topic.each), default=0)
    text = f"Replication factor {factor}, {MIN_ISR} {least}."
    if in_sync < least:
        yield error(
            where,
            f"A partition has {in_sync} of {factor} replicas in sync, and {MIN_ISR} is {least}.",
            "No record can be written to it.",
            f"Bring the missing brokers back, add replicas, or lower {MIN_ISR}.",
        )
    elif config and min(factor, least) < 2:
        yield warning(
            where,
            text,
            "The loss of one broker's disk loses records that were acknowledged, decided and "
            "committed.",
            f"Replication factor 3 and {MIN_ISR}=2.",
        )
    else:
        yield ok(where, text)
    if "compact" in config.get(POLICY, ""):
        yield warning(
            where,
            f"{POLICY} is {config[POLICY]}.",
            "Records of a decided micro-batch that the broker aborts by its timeout are removed by "
            "compaction and cannot be salvaged. Records without a key are refused.",
            "Keep the transaction timeout above the longest outage, or write to a topic that is "
            "not compacted.",
        )


def _right_to_end(asked: ClusterExamination, where: str, prefix: str) -> Problem:
    """A start does not end a transaction, and the first micro-batch does."""
    probe = KafkaScope("exactum-doctor", "probe", prefix).transactional_id(
        new_incarnation(), "0" * 16, 0
    )
    if asked.may_end(probe):
        return ok(where, f"Transactions may be opened and ended under {prefix}/.")
    return error(
        where,
        f"WRITE on transactional ids that begin with {prefix}/ is not granted.",
        "Every micro-batch is a transaction.",
        f"Grant WRITE on the transactional id, prefixed, {prefix}/ (docs/reference/rights.md).",
    )


def _timeout(
    where: str, timeout_ms: int, outage_s: float | None, config: Mapping[str, str]
) -> Problem:
    """What is decided and then aborted by the broker is salvaged, if the log still has it."""
    text = f"A transaction that is prepared may wait {_span(timeout_ms / 1000)} for its commit"
    if outage_s is None or timeout_ms / 1000 >= outage_s:
        return ok(where, f"{text}.")
    is_lost = "compact" in config.get(POLICY, "") or _shorter_kept(config, outage_s) is not None
    return (error if is_lost else warning)(
        where,
        f"{text}, and the longest outage is {_span(outage_s)}.",
        "After it the broker has aborted what was decided, and the topic may not have its records "
        f"any more ({POLICY}, {RETENTION}): its rows would be lost."
        if is_lost
        else "After a longer one the broker has aborted what was decided. Its records are then "
        "salvaged from the log, which takes as long as writing them.",
        "Raise transaction.max.timeout.ms on the brokers (and transaction_timeout_ms, where the "
        "sink has it) above the longest outage.",
    )


# ---- of any topic ------------------------------------------------------------------------------


def _leaders(where: str, topic: TopicSeen) -> Iterator[Problem]:
    lost = [str(p.index) for p in topic.each if p.leader < 0]
    if lost:
        yield error(
            where,
            f"Partition {', '.join(lost)} has no leader.",
            "Nothing can be read from it or written to it.",
            "Bring the brokers with its replicas back.",
        )


def _of_any_topic(where: str, config: Mapping[str, str]) -> Iterator[Problem]:
    if not config:
        yield warning(
            where,
            "Its settings may not be read.",
            "Whether it keeps records long enough was not looked at; and the largest record of an "
            "output is taken for 1,000,000 bytes.",
            "Grant DESCRIBE_CONFIGS on the topic.",
        )
    if config.get(UNCLEAN, "false") == "true":
        yield warning(
            where,
            f"{UNCLEAN} is on.",
            "A replica that lags may become leader. What it lacks is lost, decided or not; and "
            "records that come in its place have offsets that a query has read already.",
            f"Set {UNCLEAN}=false.",
        )


def _shorter_kept(config: Mapping[str, str], outage_s: float | None) -> float | None:
    """How long it keeps records, where that is shorter than the outage."""
    kept_s = int(config.get(RETENTION, "-1")) / 1000
    deletes = "delete" in config.get(POLICY, "delete")
    return kept_s if deletes and outage_s is not None and 0 <= kept_s < outage_s else None


def _denied(where: str, right: str, what: str) -> Problem:
    return error(
        where,
        f"{right} on it is not granted to this user.",
        "The query reads by it, and commits its place.",
        f"Grant {right} on {what} (docs/reference/rights.md lists the ACLs).",
    )


def _span(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min"
