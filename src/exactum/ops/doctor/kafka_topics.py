"""The topics that a query reads and writes: whether they are there, what the user may do, and what
their settings mean for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from exactum.kafka.examination import ClusterExamination
from exactum.kafka.requests.broker_requests import DescribedTopic
from exactum.monitor.words import duration
from exactum.ops.problem import Problem, error, ok, warning

if TYPE_CHECKING:
    from exactum.ops.doctor.kafka_cluster import ClusterSubject

READ, WRITE = "READ", "WRITE"
POLICY, RETENTION, RETENTION_BYTES = "cleanup.policy", "retention.ms", "retention.bytes"
MIN_ISR, RECORD_MAX = "min.insync.replicas", "max.message.bytes"
UNCLEAN = "unclean.leader.election.enable"
KEYS = (POLICY, RETENTION, RETENTION_BYTES, MIN_ISR, RECORD_MAX, UNCLEAN)


class TopicLook:
    """The topics of a query on one cluster. ``seen`` has those that are there, after
    ``findings``.
    """

    def __init__(
        self, asked: ClusterExamination, subject: ClusterSubject, longest_outage_s: float | None
    ) -> None:
        self._asked = asked
        self._inputs = tuple(dict.fromkeys(subject.inputs))
        self._outputs = tuple(
            dict.fromkeys(sink.topic for sink in subject.sinks if sink.topic is not None)
        )
        self._routed = any(sink.topic is None for sink in subject.sinks)
        self._outage_s = longest_outage_s
        self._configs: dict[str, Mapping[str, str]] = {}
        self.seen: dict[str, DescribedTopic] = {}

    def findings(self) -> Iterator[Problem]:
        names = (*self._inputs, *self._outputs)
        self.seen = self._asked.topics(names)
        self._configs = {name: self._asked.configs("topic", name, KEYS) for name in self.seen}
        for name in self._inputs:
            yield from self._input(name)
        for name in self._outputs:
            yield from self._output(name)
        if self._routed:
            yield ok(
                "topics that rows name",
                "A sink without a topic of its own writes to those that its rows name: give them "
                "as sinks of their own here to have them looked at.",
            )

    def compacted(self, name: str) -> bool:
        return "compact" in self._config(name, POLICY, "")

    def _config(self, name: str, key: str, default: str) -> str:
        return self._configs.get(name, {}).get(key, default)

    # ---- inputs ------------------------------------------------------------------------------

    def _input(self, name: str) -> Iterator[Problem]:
        area = f"topic {name} (input)"
        topic = self.seen.get(name)
        if topic is None:
            yield _absent(area)
            return
        yield from _partitions(area, topic)
        if not topic.may(READ):
            yield _denied(area, READ, "The query reads it.")
        else:
            yield ok(area, f"{len(topic.partitions)} partitions; READ is granted.")
        yield from self._input_retention(area, name)
        yield from self._unclean(
            area,
            name,
            "A replica that lags may become leader, and new records get the offsets of those that "
            "it lacks. Where the query had read so far it skips them without a word.",
        )

    def _input_retention(self, area: str, name: str) -> Iterator[Problem]:
        text = self._config(name, RETENTION, "")
        if not text:
            yield warning(
                area,
                "Its settings may not be read.",
                "Whether it keeps records as long as the query may be down was not looked at.",
                "Grant DESCRIBE_CONFIGS on the topic; the query itself does not need it.",
            )
            return
        retention_s = int(text) / 1000
        deletes = "delete" in self._config(name, POLICY, "delete")
        why = (
            "Records that are deleted before they were read are lost; the query then refuses to go "
            "on over the gap."
        )
        if deletes and self._outage_s is not None and 0 <= retention_s < self._outage_s:
            yield error(
                area,
                f"It keeps records for {duration(retention_s)}, and the longest outage is "
                f"{duration(self._outage_s)}.",
                why,
                f"Raise {RETENTION} above the longest outage plus the lag that is usual.",
            )
        elif deletes and int(self._config(name, RETENTION_BYTES, "-1")) >= 0:
            yield warning(
                area,
                f"It keeps at most {self._config(name, RETENTION_BYTES, '')} bytes for each "
                f"partition, however young they are.",
                why,
                f"Set {RETENTION_BYTES}=-1, or to more than the longest outage brings.",
            )

    # ---- outputs -----------------------------------------------------------------------------

    def _output(self, name: str) -> Iterator[Problem]:
        area = f"topic {name} (output)"
        topic = self.seen.get(name)
        if topic is None:
            yield _absent(area)
            return
        yield from _partitions(area, topic)
        lacking = [right for right in (WRITE, READ) if not topic.may(right)]
        if WRITE in lacking:
            yield _denied(area, WRITE, "The query writes to it.")
        if READ in lacking:
            yield _denied(
                area,
                READ,
                "What was sent is verified before the decision, and read back if the broker has "
                "aborted it after.",
            )
        if not lacking:
            yield ok(area, f"{len(topic.partitions)} partitions; WRITE and READ are granted.")
        if not self._configs.get(name):
            yield warning(
                area,
                "Its settings may not be read.",
                "Its largest record is not known (1,000,000 bytes are taken), nor whether it is "
                "compacted, nor how many replicas have to be in sync.",
                "Grant DESCRIBE_CONFIGS on the topic.",
            )
            return
        yield from self._replicas(area, name, topic)
        yield from self._output_cleanup(area, name)
        yield from self._sizes(area, name)

    def _replicas(self, area: str, name: str, topic: DescribedTopic) -> Iterator[Problem]:
        factor = min((p.replicas for p in topic.partitions), default=0)
        least = int(self._config(name, MIN_ISR, "1"))
        in_sync = min((p.in_sync for p in topic.partitions), default=0)
        if least > factor:
            yield error(
                area,
                f"{MIN_ISR} is {least}, and it has {factor} replicas.",
                "No record can be written.",
                f"Lower {MIN_ISR}, or add replicas.",
            )
        elif in_sync < least:
            yield error(
                area,
                f"A partition has {in_sync} replicas in sync, and {MIN_ISR} is {least}.",
                "No record can be written to it until they have caught up.",
                "Bring the missing brokers back.",
            )
        elif factor < 2 or least < 2:
            yield warning(
                area,
                f"Replication factor {factor}, {MIN_ISR} {least}.",
                "The loss of one broker's disk loses records that were acknowledged, decided and "
                "committed.",
                f"Replication factor 3 and {MIN_ISR}=2.",
            )
        elif least == factor:
            yield warning(
                area,
                f"{MIN_ISR} is {least}, as many as it has replicas.",
                "While one broker is down nothing can be written.",
                f"Add a replica, or set {MIN_ISR}={factor - 1}.",
            )
        else:
            yield ok(area, f"Replication factor {factor}, {MIN_ISR} {least}.")
        yield from self._unclean(
            area,
            name,
            "A replica that lags may become leader; what it lacks is lost, decided or not.",
        )

    def _unclean(self, area: str, name: str, why: str) -> Iterator[Problem]:
        if self._config(name, UNCLEAN, "false") == "true":
            yield warning(area, f"{UNCLEAN} is on.", why, f"Set {UNCLEAN}=false.")

    def _output_cleanup(self, area: str, name: str) -> Iterator[Problem]:
        if self.compacted(name):
            yield warning(
                area,
                f"{POLICY} is {self._config(name, POLICY, '')}.",
                "Records of a decided micro-batch that the broker aborts by its timeout are "
                "removed by compaction and cannot be salvaged. Records without a key are refused.",
                "Keep the transaction timeout above the longest outage, or write to a topic that "
                "is not compacted.",
            )
        retention_s = int(self._config(name, RETENTION, "-1")) / 1000
        deletes = "delete" in self._config(name, POLICY, "delete")
        if deletes and self._outage_s is not None and 0 <= retention_s < self._outage_s:
            yield warning(
                area,
                f"It keeps records for {duration(retention_s)}, and the longest outage is "
                f"{duration(self._outage_s)}.",
                "Records that were decided before an outage and are deleted during it can be "
                "neither committed nor salvaged: the next start stops and names them.",
                f"Raise {RETENTION} above the longest outage.",
            )

    def _sizes(self, area: str, name: str) -> Iterator[Problem]:
        own = int(self._config(name, RECORD_MAX, "0"))
        for source in self._inputs:
            largest = int(self._config(source, RECORD_MAX, "0"))
            if 0 < own < largest:
                yield warning(
                    area,
                    f"{RECORD_MAX} is {own:,}, and {largest:,} for the input {source}.",
                    "A record that is passed on may be too large here: it goes to the dead "
                    "letters, or stops the query.",
                    f"Raise {RECORD_MAX} to the input's, with some room for headers.",
                )


def _absent(area: str) -> Problem:
    return error(
        area,
        "It does not exist, or the user lacks DESCRIBE on it.",
        "exactum never creates topics.",
        "Create it with the number of partitions that you want, or grant DESCRIBE.",
    )


def _denied(area: str, right: str, why: str) -> Problem:
    return error(
        area,
        f"{right} on it is not granted to this user.",
        why,
        f"Grant {right} on the topic (docs/kafka.md and docs/source.md list the ACLs).",
    )


def _partitions(area: str, topic: DescribedTopic) -> Iterator[Problem]:
    lost = [p.index for p in topic.partitions if p.leader < 0]
    if lost:
        yield error(
            area,
            f"Partition {', '.join(map(str, lost))} has no leader.",
            "Nothing can be read from it or written to it.",
            "Bring the brokers with its replicas back.",
        )


# ---- the group ---------------------------------------------------------------------------------


GROUP_LOG = "__consumer_offsets"
WITHOUT_MEMBERS = ("Empty", "Dead")


def group_findings(asked: ClusterExamination, group_id: str) -> Iterator[Problem]:
    """``group_id``: as ``read_kafka`` is given it."""
    area = f"group {group_id}"
    if asked.is_missing(GROUP_LOG):
        # To ask for the group's coordinator would make Kafka's own topic.
        yield ok(area, "No group has committed anything on this cluster yet: it was not tried.")
        return
    found = asked.group(group_id)
    if found is None or not found.may_read:
        yield error(
            area,
            "The user may not read and commit its offsets.",
            "The source reads them at its start, and commits after each micro-batch.",
            f"Grant READ on the group {group_id} (docs/source.md lists the ACLs).",
        )
        return
    if found.state not in WITHOUT_MEMBERS:
        yield error(
            area,
            f"It has {found.members} members and is {found.state}.",
            "The members of a group alone may set its offsets, so that exactum's commits are "
            "refused; and both would read the same topics.",
            "Stop those consumers, or take a group of the query's own.",
        )
        return
    yield ok(area, "Its offsets can be read and committed; it has no members.")
