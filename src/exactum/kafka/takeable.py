"""Which rows of a batch Kafka can take. Each of the others is handed back with its key, its column
and the reason.

A row that is not found here would fail with the broker or inside librdkafka, and the whole
transaction with it. Good rows are looked at as whole arrays; only what is refused becomes Python
objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.kafka.records import (
    BATCH_HEAD,
    RECORD_OVERHEAD_MAX,
    Array,
    batch_bytes,
    header_bytes,
    header_counts,
    lengths,
)
from exactum.kafka.topic import TopicBook, TopicFacts, name_trouble
from exactum.protocol.sink import Rejection
from exactum.sinks.rows import RowCheck
from exactum.values.excerpt import cut
from exactum.values.nested import mask_of, not_utf8

KEY_SHOWN_MAX = 100
NO_LIMIT = 2**62


@dataclass(frozen=True)
class RecordRules:
    """``topic``: where all rows go; None: each row names its own. ``book`` tells of either.
    ``inputs``: the names of topics that the query reads, to which no row may go.

    ``record_bytes_max`` is what the producers take, whatever the topic: librdkafka's
    message.max.bytes.
    """

    topic: str | None
    book: TopicBook
    record_bytes_max: int
    inputs: tuple[re.Pattern[str], ...] = ()

    def trouble(self, name: bytes) -> str:
        """Why no row may go to a topic of this name, whether it is there or not; empty: it may."""
        trouble = name_trouble(name)
        if not trouble and any(names.fullmatch(name.decode()) for names in self.inputs):
            return "this query reads, so it would read the row again (failOnLoop=False allows it)"
        return trouble

    def takeable(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejection | None]:
        """The batch without the rows that can never be taken, and those."""
        if batch.num_rows == 0:
            return batch, None
        return _Inspection(self, batch).outcome()


class _Inspection:
    """One batch's."""

    def __init__(self, rules: RecordRules, batch: pa.RecordBatch) -> None:
        self._rules = rules
        self._batch = batch
        self._columns = set(batch.schema.names)
        self._check = RowCheck(batch)
        self._topics: list[str] = []
        self._facts: list[TopicFacts] = []
        self._topic_of: Array = np.zeros(batch.num_rows, dtype=np.int64)  # each row's place in both

    def outcome(self) -> tuple[pa.RecordBatch, Rejection | None]:
        self._check_topics()
        if "partition" in self._columns:
            self._check_partitions()
        header_sizes, header_counts = self._check_headers()
        self._check_keys()
        self._check_sizes(header_sizes, header_counts)
        return self._check.outcome(_names)

    def _refuse(self, rows: Array, reason: str | Callable[[int], str]) -> None:
        """The first reason counts: what is wrong with a topic spoils what is checked after it."""
        self._check.refuse(rows, reason, again=False)

    # ---- topic -------------------------------------------------------------------------------

    def _check_topics(self) -> None:
        if self._rules.topic is not None:
            self._topics = [self._rules.topic]
            self._facts = list(self._rules.book.facts(self._topics).values())
            return
        column = self._batch.column("topic")
        if column.null_count:
            nulls = mask_of(column.is_null())
            self._refuse(nulls, "its column 'topic' is null, and the sink has no topic of its own")
        encoded = column.cast(pa.binary()).dictionary_encode()
        self._topic_of = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        named: list[bytes] = encoded.dictionary.to_pylist()
        trouble = {name: self._rules.trouble(name) for name in named}
        facts = self._rules.book.facts([name.decode() for name in named if not trouble[name]])
        for place, name in enumerate(named):
            shown = name.decode(errors="backslashreplace")
            about = facts.get(shown, TopicFacts(0, trouble=trouble[name]))
            self._topics.append(shown)
            self._facts.append(about)
            if about.trouble:
                named_so = cut(repr(shown), KEY_SHOWN_MAX)
                self._refuse(
                    self._topic_of == place,
                    f"its column 'topic' holds {named_so}, which {about.trouble}",
                )
        if not named:
            self._topics, self._facts = [""], [TopicFacts(0, trouble="null")]

    def _each(self, of_topic: Callable[[TopicFacts], int]) -> Array:
        """A number of each row's topic."""
        found: Array = np.array([of_topic(facts) for facts in self._facts])[self._topic_of]
        return found

    # ---- partition ---------------------------------------------------------------------------

    def _check_partitions(self) -> None:
        column = self._batch.column("partition")
        if column.null_count == len(column):
            return
        partitions = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        given = mask_of(column.is_valid())
        outside = given & (partitions >= self._each(lambda facts: facts.partitions))
        if outside.any():  # partitions are added, never taken away
            places = set(self._topic_of[outside].tolist())
            asked = [self._topics[place] for place in places if not self._facts[place].trouble]
            now = self._rules.book.facts(asked, anew=True)
            self._facts = [
                now.get(name, facts) for name, facts in zip(self._topics, self._facts, strict=True)
            ]
            outside = given & (partitions >= self._each(lambda facts: facts.partitions))
        self._refuse(
            outside | (given & (partitions < 0)),
            lambda row: (
                f"its column 'partition' holds {partitions[row]}, and the topic "
                f"{self._topics[self._topic_of[row]]!r} has "
                f"{self._facts[self._topic_of[row]].partitions} partitions, from 0 on"
            ),
        )

    # ---- headers -----------------------------------------------------------------------------

    def _check_headers(self) -> tuple[Array, Array]:
        """Bytes of all headers of each row, and their count; 0 where there are none."""
        if "headers" not in self._columns:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        column = self._batch.column("headers")
        cells, counts = column.flatten(), header_counts(column)
        names, _ = cells.flatten()
        if cells.null_count:
            self._refuse_headers(cells.is_null(), counts, "has a header that is null")
        if names.null_count:
            self._refuse_headers(names.is_null(), counts, "has a header without a key")
        broken = not_utf8(names)
        if broken is not None:
            self._refuse_headers(
                pa.array(broken), counts, "has a header whose key is not UTF-8 text"
            )
        cut_short = pc.fill_null(pc.match_substring(names.cast(pa.binary()), "\0"), False)
        self._refuse_headers(cut_short, counts, "has a header with NUL in its key")
        return header_bytes(column), counts

    def _refuse_headers(self, wrong: pa.Array, counts: Array, reason: str) -> None:
        rows = np.repeat(np.arange(len(counts)), counts)[wrong.to_numpy(zero_copy_only=False)]
        refused = np.zeros(len(counts), dtype=bool)
        refused[rows] = True
        self._refuse(refused, f"its column 'headers' {reason}")

    # ---- key and size ------------------------------------------------------------------------

    def _check_keys(self) -> None:
        if not any(facts.compacted for facts in self._facts):
            return
        if "key" not in self._columns:
            missing, where = np.ones(self._batch.num_rows, dtype=bool), "there is no column 'key'"
        else:
            missing = mask_of(self._batch.column("key").is_null())
            where = "there is null in the column 'key'"
        self._refuse(
            missing & self._each(lambda facts: facts.compacted).astype(bool),
            lambda row: (
                f"{where}, and the topic {self._topics[self._topic_of[row]]!r} is compacted (its "
                "cleanup.policy), so it takes no record without a key"
            ),
        )

    def _check_sizes(self, headers: Array, header_counts: Array) -> None:
        limits = self._rules
        values = lengths(self._batch.column("value"))
        keys = (
            lengths(self._batch.column("key"))
            if "key" in self._columns
            else np.zeros(1, dtype=np.int64)
        )
        topic_limits = self._each(
            lambda facts: NO_LIMIT if facts.batch_bytes_max is None else facts.batch_bytes_max
        )
        content = values + keys + headers
        overhead_max = BATCH_HEAD + RECORD_OVERHEAD_MAX
        least = min(limits.record_bytes_max, int(topic_limits.min()))
        if int(content.max()) <= least - overhead_max:
            return
        client = content + RECORD_OVERHEAD_MAX
        batch = batch_bytes(keys, values, headers, header_counts)
        self._refuse(
            batch > topic_limits,
            lambda row: (
                f"it has {content[row]} bytes in key, value and headers, with Kafka's own "
                f"{batch[row]}, larger than the {topic_limits[row]} that the topic "
                f"{self._topics[self._topic_of[row]]!r} takes (its max.message.bytes)"
            ),
        )
        self._refuse(
            client > limits.record_bytes_max,
            lambda row: (
                f"it has {content[row]} bytes in key, value and headers, with the client's own "
                f"{client[row]}, larger than the {limits.record_bytes_max} that the producer takes "
                "(message.max.bytes of the sink's producer settings; unless it is set there, it "
                "follows the topic where the user may read the topic's settings; the broker's "
                "socket.request.max.bytes counts as well)"
            ),
        )


def _names(rows: pa.RecordBatch) -> list[str]:
    if "key" in rows.schema.names:
        return [
            f"the record with key {_shown(key)}" for key in rows["key"].cast("binary").to_pylist()
        ]
    return [f"the record with key {_shown(None)}"] * rows.num_rows


def _shown(key: bytes | None) -> str:
    return "null" if key is None else cut(repr(key[:KEY_SHOWN_MAX]), KEY_SHOWN_MAX)
