"""Counts for itself what a read_committed reader sees. Never uses the code under test.

Input ------------ what was produced, by key and by (partition, offset)
CommittedReader -- a reader that runs all through the chaos
read_all --------- a later reader, from the beginning
check_* ---------- raise OracleFailure, naming the first few records that are wrong
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.admin import KafkaAdminClient

from tests.kit.spark.commit_log import last_batch
from tests.kit.waiting import WAIT_MAX_S

REST_TIMEOUT_S = WAIT_MAX_S
NOT_LEADING_YET = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
SHOWN_MAX = 5
Position = tuple[int, int]
"""(partition, offset)"""


class OracleFailure(AssertionError):
    """What was read is not what had to be there."""


@dataclass(frozen=True)
class Seen:
    """One record as a reader saw it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Input:
    """What was produced: ``values[key]`` in order, and each record's key and value by its
    position.
    """

    topic: str
    values: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    positions: dict[Position, tuple[str, str]] = field(default_factory=dict)
    count: int = 0

    def produce(self, bootstrap_servers: str, count: int) -> None:
        """Append ``count`` numbered records, spread over ten keys."""
        producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        for number in range(self.count, self.count + count):
            key, value = f"k{number % 10}", f"n{number:06d}"
            self.values[key].append(value)

            def delivered(
                error: KafkaError | None, message: object, key: str = key, value: str = value
            ) -> None:
                if error is not None:
                    raise OracleFailure(f"the input could not be produced: {error}")
                self.positions[message.partition(), message.offset()] = (key, value)  # type: ignore[attr-defined]

            producer.produce(self.topic, value, key, on_delivery=delivered)
        if producer.flush(WAIT_MAX_S):
            raise OracleFailure("the input could not be produced")
        self.count += count

    def upper(self) -> dict[str, list[str]]:
        """What the stateless job must make of it."""
        return {key: [value.upper() for value in values] for key, values in self.values.items()}

    def between(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[tuple[str, str]]:
        """(key, value) of the records from ``start`` (inclusive) to ``end``, offsets by
        partition.
        """
        return [
            record
            for (partition, offset), record in sorted(self.positions.items())
            if start.get(partition, 0) <= offset < end.get(partition, 0)
        ]


# ---- readers -------------------------------------------------------------------------------------


class CommittedReader(threading.Thread):
    """Reads ``topics`` with read_committed from the beginning until it is stopped; outlives
    broker restarts.
    """

    def __init__(self, bootstrap_servers: str, topics: Sequence[str], start: int = 0) -> None:
        super().__init__(name="oracle", daemon=True)
        self.seen: list[Seen] = []
        self.broken: str | None = None
        self._servers = bootstrap_servers
        self._topics = tuple(topics)
        self._positions: dict[tuple[str, int], int] = defaultdict(int)
        self._ending = threading.Event()
        self._consumer = _consumer(bootstrap_servers)
        self._consumer.assign(
            [TopicPartition(t, p, start) for t, p in partitions_of(bootstrap_servers, self._topics)]
        )

    def __enter__(self) -> CommittedReader:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(WAIT_MAX_S)
        self._consumer.close()

    def run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.seen.append(_seen(message))
                self._positions[message.topic(), message.partition()] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._positions[message.topic(), message.partition()] = message.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.broken = str(error)  # a record that was there once is there no more
                return

    def caught_up(self) -> list[Seen]:
        """Everything seen, once all that is readable at the time of the call was read."""
        targets = end_offsets(self._servers, self._topics, committed=True)
        deadline = time.monotonic() + WAIT_MAX_S
        while any(self._positions[p] < end for p, end in targets.items()):
            if self.broken or time.monotonic() > deadline or not self.is_alive():
                raise OracleFailure(
                    f"the reader is at {dict(self._positions)} of {targets}: {self.broken}"
                )
            time.sleep(0.01)
        return list(self.seen)


def read_all(bootstrap_servers: str, topics: Sequence[str]) -> list[Seen]:
    """What a reader that comes now sees, from the first record that the log still has."""
    with CommittedReader(bootstrap_servers, topics, OFFSET_BEGINNING) as reader:
        return reader.caught_up()


def partitions_of(bootstrap_servers: str, topics: Sequence[str]) -> list[tuple[str, int]]:
    known = (
        AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        .list_topics(timeout=WAIT_MAX_S)
        .topics
    )
    return [(topic, partition) for topic in topics for partition in known[topic].partitions]


def end_offsets(
    bootstrap_servers: str, topics: Sequence[str], *, committed: bool
) -> dict[tuple[str, int], int]:
    """Last stable offset (``committed``) or high watermark of every partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {
        TopicPartition(t, p): OffsetSpec.latest()
        for t, p in partitions_of(bootstrap_servers, topics)
    }
    deadline = time.monotonic() + WAIT_MAX_S
    while True:
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=WAIT_MAX_S)
        try:
            return {
                (tp.topic, tp.partition): future.result(WAIT_MAX_S).offset
                for tp, future in answers.items()
            }
        except KafkaException as error:
            # The controller says who leads a moment before a broker that has just come back knows
            # it of itself.
            if error.args[0].code() not in NOT_LEADING_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def ongoing(bootstrap_servers: str, part: str) -> list[str]:
    """Transactional ids that contain ``part`` and have an open transaction."""
    return known(bootstrap_servers, part, ["Ongoing"])


def known(bootstrap_servers: str, part: str, states: Sequence[str] = ()) -> list[str]:
    """Transactional ids that contain ``part``, in these states or in any."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        listed = admin.list_transactions(state_filters=states or None)
    finally:
        admin.close()
    return sorted(
        t.transactional_id for each in listed.values() for t in each if part in t.transactional_id
    )


# ---- checks --------------------------------------------------------------------------------------


def check_no_duplicates(seen: Iterable[Seen]) -> None:
    """No value stands twice in one topic."""
    twice = [
        (what, n) for what, n in Counter((s.topic, s.key, s.value) for s in seen).items() if n > 1
    ]
    if twice:
        raise OracleFailure(
            f"{len(twice)} records are there more than once: {sorted(twice, key=str)[:SHOWN_MAX]}"
        )


def check_order(seen: Sequence[Seen], expected: Mapping[str, Sequence[str]]) -> None:
    """Each key stays in one partition, and those of its values that are in ``expected`` follow
    each other so.
    """
    for (topic, key), records in _by_key(seen).items():
        places = {s.partition for s in records}
        if len(places) > 1:
            raise OracleFailure(f"{topic}: key {key} is in the partitions {sorted(places)}")
        rank = {value: n for n, value in enumerate(expected.get(key, ()))}
        ranks = [rank[s.value] for s in sorted(records, key=lambda s: s.offset) if s.value in rank]
        for before, after in itertools.pairwise(ranks):
            if after < before:
                raise OracleFailure(
                    f"{topic}: key {key}: its value {after} comes after its value {before}"
                )


def check_exact(
    seen: Sequence[Seen], expected: Mapping[str, Sequence[str]], topics: Sequence[str]
) -> None:
    """In every topic: exactly the values of ``expected``, once each, in order within each key."""
    check_no_duplicates(seen)
    check_order(seen, expected)
    wanted = {(key, value) for key, values in expected.items() for value in values}
    for topic in topics:
        there = {(s.key, s.value) for s in seen if s.topic == topic}
        lost, foreign = sorted(wanted - there, key=str), sorted(there - wanted, key=str)
        if lost or foreign:
            raise OracleFailure(
                f"{topic}: {len(lost)} of {len(wanted)} lost {lost[:SHOWN_MAX]}, "
                f"{len(foreign)} that nobody wrote {foreign[:SHOWN_MAX]}"
            )


def check_same(first: Iterable[Seen], later: Iterable[Seen]) -> None:
    """Who reads later sees the same records at the same offsets."""
    gone, new = set(first) - set(later), set(later) - set(first)
    if gone or new:
        raise OracleFailure(
            f"a later reader misses {list(gone)[:SHOWN_MAX]} and sees besides "
            f"{list(new)[:SHOWN_MAX]}"
        )


def check_at_rest(bootstrap_servers: str, topics: Sequence[str], part: str) -> None:
    """No transaction whose id contains ``part`` is open, and nothing is hidden: every last stable
    offset is the high watermark. The broker writes its markers a moment after it answers, so this
    waits for them.
    """
    deadline = time.monotonic() + REST_TIMEOUT_S
    while True:
        stable = end_offsets(bootstrap_servers, topics, committed=True)
        high = end_offsets(bootstrap_servers, topics, committed=False)
        opened = ongoing(bootstrap_servers, part)
        if stable == high and not opened:
            return
        if time.monotonic() > deadline:
            gaps = {p: (stable[p], high[p]) for p in high if stable[p] != high[p]}
            raise OracleFailure(
                f"not at rest after {REST_TIMEOUT_S:.0f} s: open {opened}, (stable, high) {gaps}"
            )
        time.sleep(0.1)


# ---- epochs, by Spark's own logs and the names and contents of the decision files
# ------------------


@dataclass(frozen=True)
class Checkpoint:
    """What stands in a query's checkpoint folder, read as text."""

    folder: Path
    input_topic: str

    @property
    def query_id(self) -> str:
        return str(json.loads((self.folder / "metadata").read_text())["id"])

    def ends(self, batch_id: int) -> dict[int, int]:
        """Offsets by input partition up to which ``batch_id`` reads."""
        path = self.folder / "offsets" / str(batch_id)
        if batch_id < 0:
            return {}
        last = path.read_text().splitlines()[-1]
        return {int(p): int(offset) for p, offset in json.loads(last)[self.input_topic].items()}

    def finished(self) -> int:
        """The last batch in Spark's commit log, -1 if there is none."""
        return last_batch(self.folder)

    def decided(self) -> int:
        """The last batch with a recorded COMMIT, -1 if there is none. A record that is torn says
        nothing.
        """
        last = -1
        for path in (self.folder / "exactum" / "decisions").glob("*.json"):
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(path.read_text())
                if record["decision"] == "commit":
                    last = max(last, record["batch_id"])
        return last


def check_epochs(
    seen: Sequence[Seen], source: Input, checkpoint: Checkpoint, topics: Sequence[str]
) -> None:
    """Nothing of an undecided epoch is visible, all of a finished epoch is."""
    may = {(k, v.upper()) for k, v in source.between({}, checkpoint.ends(checkpoint.decided()))}
    must = {(k, v.upper()) for k, v in source.between({}, checkpoint.ends(checkpoint.finished()))}
    for topic in topics:
        there = {(s.key, s.value) for s in seen if s.topic == topic}
        early, late = sorted(there - may, key=str), sorted(must - there, key=str)
        if early or late:
            raise OracleFailure(
                f"{topic}: {len(early)} records of undecided epochs are visible "
                f"{early[:SHOWN_MAX]}, {len(late)} of finished epochs are not {late[:SHOWN_MAX]}"
            )


def running_totals(source: Input, checkpoint: Checkpoint, first: int = 0) -> dict[str, list[str]]:
    """What an update-mode count and sum by key must have written in the batches from ``first`` on."""
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    written: dict[str, list[str]] = defaultdict(list)
    before: Mapping[int, int] = {}
    for batch in range(first - 1, checkpoint.finished() + 1):  # others may be in no log any more
        records, before = source.between(before, checkpoint.ends(batch)), checkpoint.ends(batch)
        for key, value in records:
            count[key] += 1
            total[key] += int(value[1:])
        for key in {key for key, _ in records if batch >= first}:
            written[key].append(f"{count[key]}:{total[key]}")
    return written


def check_totals(seen: Sequence[Seen], source: Input, checkpoint: Checkpoint) -> None:
    """Each key's outputs are the running totals of the input, batch by batch, once each and in
    order.
    """
    written = {
        key: [s.value for s in sorted(records, key=lambda s: s.offset)]
        for (_, key), records in _by_key(seen).items()
    }
    expected = running_totals(source, checkpoint)
    wrong = [
        key
        for key in sorted(expected.keys() | written.keys(), key=str)
        if written.get(key) != expected.get(key)
    ]
    if wrong:
        raise OracleFailure(
            f"key {wrong[0]}: {written.get(wrong[0])} was written instead of "
            f"{expected.get(wrong[0])}"
        )
    for key, values in source.values.items():
        total = f"{len(values)}:{sum(int(value[1:]) for value in values)}"
        if written[key][-1] != total:
            raise OracleFailure(
                f"key {key}: its last total is {written[key][-1]} instead of {total}"
            )


def _by_key(seen: Iterable[Seen]) -> dict[tuple[str, str | None], list[Seen]]:
    result: dict[tuple[str, str | None], list[Seen]] = defaultdict(list)
    for record in seen:
        result[record.topic, record.key].append(record)
    return result


def _consumer(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def _seen(message: object) -> Seen:
    key, value = message.key(), message.value()  # type: ignore[attr-defined]
    return Seen(
        message.topic(),  # type: ignore[attr-defined]
        message.partition(),  # type: ignore[attr-defined]
        message.offset(),  # type: ignore[attr-defined]
        None if key is None else key.decode(errors="backslashreplace"),
        None if value is None else value.decode(errors="backslashreplace"),
        tuple(message.headers() or ()),  # type: ignore[attr-defined]
    )
