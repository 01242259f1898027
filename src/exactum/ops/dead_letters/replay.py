"""Sends dead letters on to a topic, each of them once, whatever dies meanwhile.

A replay is run by the protocol that runs queries: chunks of letters are its epochs, the Kafka sink
is its participant, and ``<checkpoint>/exactum/replays/`` its decision log. A letter counts as
replayed once a COMMIT names it, and that record is what marks it. Of two replays at once the newer
fences the older, as two drivers do.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import pyarrow as pa

from exactum.checkpoint.layout import OF_PARENT, REPLAYS
from exactum.checkpoint.query_record import listed
from exactum.errors import SettingRefused
from exactum.files.slot_log import SlotLog
from exactum.kafka.readback import LoggedRecord, RangeGone, committed_records
from exactum.kafka.requests import OF_A_READER, BrokerRequests
from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import Partition
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.dead_letter import DeadLetter
from exactum.protocol.model import (
    DecisionRecord,
    PreparedTransaction,
    SourceOffsets,
    new_incarnation,
)
from exactum.protocol.resolve import commit_in_force
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, TaskName, WriteOrder
from exactum.storage.storage import Storage

LETTERS_PER_EPOCH_MAX = 1_000
GONE = "the record at its place is gone, or is another one; send the letter by --to"
NEAR = 500
"""A record so few offsets on is read up to, instead of looked for anew."""
PARTICIPANT = "replay"
REPLAYED_HEADER = "exactum.replayed"
"""Of a record that was sent again: the identity of the letter that it was. The last of its headers.
"""
Headers = tuple[tuple[str, bytes | None], ...]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("headers", "array<struct<key:string,value:binary>>"),
)


@dataclass(frozen=True)
class Record:
    """What is sent, where to, and for which letter. ``marks``: what counts as sent with it; a
    record that two sinks refused has two letters. ``headers`` go before the one of a replay.
    """

    identity: str
    marks: tuple[str, ...]
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True)
class Replayed:
    """``refused``: reasons by the identity of letters that the topic can never take."""

    sent: int
    refused: dict[str, str]


def replays_of(query_id: str) -> str:
    """The id under which a query's replays are recorded."""
    return str(uuid.uuid5(uuid.UUID(query_id), "exactum/replays"))


def sink_of(topic: str | None, settings: Mapping[str, str], prefix: str | None = None) -> KafkaSink:
    """What a replay writes into; None: each record names its topic. ``settings`` are librdkafka's,
    with ``bootstrap.servers``; ``prefix`` that of transactional ids.
    """
    login = dict(settings)
    servers = login.pop("bootstrap.servers")
    return KafkaSink(
        topic, bootstrap_servers=servers, transactional_id_prefix=prefix, producer=login
    )


@dataclass(frozen=True)
class Replays:
    """What was sent again, by its mark the topic. ``unfinished`` is decided, and not known to be
    visible: a replay is at work, or was killed; the next one finishes it.
    """

    sent: Mapping[str, str]
    unfinished: Mapping[str, str] = field(default_factory=dict)


def replays(files: Storage, query_id: str) -> Replays:
    """Those of a query's dead letters.

    Raises:
        ExactumError: as ``DecisionLog.read``.
    """
    decided = _decided(files, query_id)
    last = _unfinished(decided)
    return Replays(inherited(files) | _marks(decided[: len(decided) - len(last)]), _marks(last))


def inherited(files: Storage) -> dict[str, str]:
    """What the query that this one is a fork of had sent when the savepoint was made, and what that
    had of its own.

    Raises:
        ExactumError: as ``DecisionLog.read``; CheckpointRefused: the folder could not be read.
    """
    found: dict[str, str] = {}
    names = listed(files, REPLAYS, "what was replayed before", not_done="sent")
    for name in (name for name in names if name.startswith(OF_PARENT)):
        found |= _marks(_decided(files, name.removeprefix(OF_PARENT), name))
    return found


def _log_in(files: Storage, query_id: str, below: str = "") -> SlotLog:
    return SlotLog(files.below(f"{REPLAYS}/{below}".rstrip("/")), replays_of(query_id))


def _decided(files: Storage, query_id: str, below: str = "") -> list[DecisionRecord]:
    """The COMMITs in force, in the order of their batches, which have no gap."""
    found: list[DecisionRecord] = []
    with closing(_log_in(files, query_id, below)) as log:
        while (in_force := commit_in_force(log.read(len(found)))) is not None:
            found.append(in_force)
    return found


def _unfinished(decided: Sequence[DecisionRecord]) -> Sequence[DecisionRecord]:
    """The last one, where it names transactions: a batch begins when the one before is visible, and
    a replay ends with a batch of nothing.
    """
    return [record for record in decided[-1:] if record.prepared]


def _marks(decided: Iterable[DecisionRecord]) -> dict[str, str]:
    found: dict[str, str] = {}
    for record in decided:
        found |= json.loads(record.engine or "{}")
    return found


def _nothing(order: WriteOrder) -> Sequence[PreparedTransaction]:
    return ()


class Replay:
    """One replay of a query's dead letters. Closed by its owner.

    Making it finishes what an earlier one had decided, and fences one that is still at work.

    Raises:
        SettingRefused: the sink's settings cannot hold the guarantee.
        Unavailable: the brokers did not answer.
    """

    def __init__(self, files: Storage, query_id: str, sink: KafkaSink) -> None:
        log = _log_in(files, query_id)
        run = QueryRun(replays_of(query_id), new_incarnation(), Guarantee.EXACTLY_ONCE)
        self._opened: OpenSink = sink.open(run, PARTICIPANT, COLUMNS)
        self._named: dict[str, str] = {}
        self._coordinator = Coordinator(
            run, [self._opened.participant], log, engine=lambda: json.dumps(self._named)
        )
        try:
            # The last epoch again where it may not be visible, and a new one of nothing: the start
            # that belongs to it redelivers and fences. Only from then on the records say for
            # certain what was sent. What is visible is not asked for again: its topic may be gone.
            decided = _decided(files, query_id)
            self._batch_id = len(decided) - len(_unfinished(decided))
            self._run(_nothing)
            decided = _decided(files, query_id)  # what was fenced may have decided more meanwhile
            self._batch_id = len(decided)
            if _unfinished(decided):
                self._run(_nothing)
            self.known = inherited(files) | _marks(decided)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._coordinator.close()

    def _run(self, write: Callable[[WriteOrder], Sequence[PreparedTransaction]]) -> None:
        self._named = {}
        self._coordinator.run(self._batch_id, SourceOffsets(), write)
        self._batch_id += 1

    def send(
        self, records: Iterable[Record], on_sent: Callable[[int], None] = lambda count: None
    ) -> Replayed:
        """Send what was not sent before, some at a time; ``on_sent`` hears how many stand.

        Raises:
            Fenced: a newer replay has taken over; what this one has sent stands.
            ExactumError: as ``Coordinator.run``. What stands is marked, so that the same may be
                tried again.
        """
        sent, refused = 0, dict[str, str]()
        waiting = (r for r in records if self.known.keys().isdisjoint(r.marks))
        while chunk := list(islice(waiting, LETTERS_PER_EPOCH_MAX)):
            self._run(partial(self._write, chunk, refused))
            self.known |= self._named
            sent += sum(record.marks[0] in self._named for record in chunk)
            on_sent(len(chunk))
        if sent:
            self._run(_nothing)  # it says that all before it is visible
        return Replayed(sent, refused)

    def _write(
        self, chunk: Sequence[Record], refused: dict[str, str], order: WriteOrder
    ) -> list[PreparedTransaction]:
        writer = self._opened.writers.open(order, TaskName(0, 0, 0))
        try:
            rejection = writer.write(batch_of(chunk))
            reasons = {}
            if rejection is not None:
                identities = [
                    headers[-1]["value"].decode()
                    for headers in rejection.rows.column("headers").to_pylist()
                ]
                reasons = dict(zip(identities, rejection.reasons, strict=True))
            refused |= reasons
            self._named = {
                mark: record.topic
                for record in chunk
                if record.identity not in reasons
                for mark in record.marks
            }
            prepared = writer.prepare()
        except BaseException:
            writer.abort()
            raise
        return [] if prepared is None else [prepared]


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    """What the Kafka sink writes of these records."""
    return pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": pa.array([record.topic for record in records], pa.string()),
            "headers": pa.array(
                [
                    [
                        {"key": name, "value": value}
                        for name, value in (
                            *record.headers,
                            (REPLAYED_HEADER, record.identity.encode()),
                        )
                    ]
                    for record in records
                ],
                HEADERS,
            ),
        }
    )


def refuse_loop(topic: str, dead_letter_topic: str | None) -> None:
    """
    Raises:
        SettingRefused: the letters would go where they come from.
    """
    if topic == dead_letter_topic:
        raise SettingRefused(
            "DEAD_LETTERS_UNKNOWN",
            f"{topic!r} is the topic of the dead letters themselves: a replay into it would never "
            "end. Give another one. Nothing was sent.",
        )


# ---- the records that they were, from the query's own input -----------------------------------


class Originals:
    """Of one cluster. Closed by its owner. ``lost``: why a letter's record is not to be had, by the
    letter's identity.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``."""
        self._requests = BrokerRequests(settings, "exactum dead-letters", OF_A_READER)
        self.lost: dict[str, str] = {}

    def close(self) -> None:
        self._requests.close()

    def of(self, dead_letters: Iterable[DeadLetter]) -> Iterator[Record]:
        """The record of each letter, to go back to its topic; in the order of their offsets.

        Raises:
            Unavailable, SettingRefused: the brokers did not answer, or refuse to.
        """
        by_partition: dict[Partition, dict[int, list[DeadLetter]]] = defaultdict(dict)
        for dead_letter in dead_letters:
            origin = dead_letter.origin
            if origin is None:
                self.lost[dead_letter.identity] = "it is not known which record it was"
            else:
                topic, index, offset = origin
                by_partition[topic, index].setdefault(offset, []).append(dead_letter)
        for partition, wanted in sorted(by_partition.items()):
            yield from self._in_partition(partition, wanted)

    def _in_partition(
        self, partition: Partition, wanted: Mapping[int, list[DeadLetter]]
    ) -> Iterator[Record]:
        """A record that two sinks refused goes back once."""
        for offset, found in self._at(partition, sorted(wanted)):
            dead_letters = wanted[offset]
            same = [each for each in dead_letters if found is not None and _is_of(found, each)]
            self.lost |= {each.identity: GONE for each in dead_letters if each not in same}
            if found is not None and same:
                marks = dict.fromkeys(mark for dead_letter in same for mark in dead_letter.marks)
                yield Record(
                    same[0].identity,
                    tuple(marks),
                    partition[0],
                    found.key,
                    found.value,
                    _own_headers(found),
                )

    def _at(
        self, partition: Partition, offsets: Sequence[int]
    ) -> Iterator[tuple[int, LoggedRecord | None]]:
        """Each of these offsets, which ascend, with its record; None where there is none any
        more.
        """
        left = deque(offsets)
        while left:
            try:
                yield from self._onwards(partition, left)
            except RangeGone:
                yield left.popleft(), None

    def _onwards(
        self, partition: Partition, left: deque[int]
    ) -> Iterator[tuple[int, LoggedRecord | None]]:
        """From the first one on, taken from ``left``, while the next one is near."""
        for record in committed_records(self._requests, partition, left[0]):
            while left and left[0] < record.offset:
                yield left.popleft(), None
            if left and left[0] == record.offset:
                yield left.popleft(), record
            if not left or left[0] > record.offset + NEAR:
                return
        while left:  # the partition has ended
            yield left.popleft(), None


def _is_of(record: LoggedRecord, dead_letter: DeadLetter) -> bool:
    """Whether it is the record that was refused: a topic that was made anew has others there. By
    its time; where the letter does not know that, by its key and value.
    """
    if dead_letter.timestamp_ms is not None:
        return dead_letter.timestamp_ms == record.timestamp_ms
    return (dead_letter.key, dead_letter.value) == (record.key, record.value)


def _own_headers(record: LoggedRecord) -> Headers:
    """Without what an earlier replay added."""
    return tuple(each for each in record.headers if each[0] != REPLAYED_HEADER)
