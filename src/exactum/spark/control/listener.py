"""Brings a control stream's rules to an epoch: read to the end, sent along with its tasks, and on
record when it is decided, so that one that is computed again sees the same.

    <checkpoint>/exactum/control/<topic>/00000000000000000042-<incarnation>.json
        a view: all keys and their values, the offsets up to which it goes, and the ids of the topic
        and its cluster. Read for epoch 42, and seen from there on until the topic had more.

The view itself is kept, not only how far the topic was read: compaction and retention take from the
topic what an epoch saw, and a crash may ask for it again. An epoch's decision names its file, so
one of an attempt that was never decided counts for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from exactum import events
from exactum.checkpoint.layout import CONTROL
from exactum.checkpoint.query_record import VERSION, damaged, decoded
from exactum.errors import CheckpointRefused, RowsRefused
from exactum.kafka.readback import LoggedRecord
from exactum.kafka.topic import TopicIdentity
from exactum.kafka.topic_reader import TopicReader, another, checked
from exactum.protocol.model import Completed
from exactum.spark.control.stream import ControlStream, View, text_of
from exactum.spark.query import Batch, EpochListener, Run

_VIEW = re.compile(r"\d{20}-[0-9a-f]{16}\.json")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch sees, as a file has it: the view (``pairs``, see ``text_of``), the offsets up
    to which it goes, and of which topic it is.
    """

    version: int = VERSION
    pairs: str
    offsets: Mapping[int, int]
    topic_id: str | None = None
    cluster_id: str | None = None

    @property
    def topic(self) -> TopicIdentity:
        return TopicIdentity(self.topic_id, self.cluster_id)


def _epoch(name: str) -> str:
    return name.partition("-")[0]


PRUNE_EVERY = 20
"""Epochs between two prunings of the records."""


class ControlListener(EpochListener):
    """One control stream of one run: one view at a time, that of the epoch at hand.

    Raises:
        CheckpointRefused: the checkpoint is neither in a folder nor in an object store; a record
            there is damaged or missing; or the topic was made anew.
        RowsRefused: a record has no key, cannot be decoded, or the whole is too large.
        SettingRefused: the topic does not exist.
        Unavailable: the broker, or the storage, did not answer.
    """

    def __init__(self, stream: ControlStream, run: Run) -> None:
        if run.files is None:
            raise CheckpointRefused(
                "CONTROL_CHECKPOINT",
                f"{run}: {stream} needs a checkpoint in a folder or in an object store, where "
                "it records what decided epochs saw. Nothing was written.",
            )
        self.topic = stream.topic
        self._stream = stream
        self._run = run
        self._spark_context: Any = run.session.sparkContext
        name = re.sub(r"[^A-Za-z0-9._-]", "_", stream.topic)
        self._files = run.files.below(f"{CONTROL}/{name}")
        self._name, self._seen = self._newest()
        self._is_on_record = bool(self._name)
        self._last: dict[int, dict[Any, bytes]] = {}  # by partition, of each key, and of none
        # Up to which this run has read; None: nothing yet.
        self._ends: Mapping[int, int] | None = None
        self._reader = TopicReader(
            stream.topic,
            stream.bootstrap_servers,
            checked(stream.consumer, repr(stream)),
            self._seen.offsets,
        )
        try:
            # For rows=, which says at the start which columns it gives. What is on record does for
            # that: a topic that is gone must not keep a decided epoch from being committed.
            self._show(self._seen if self._name else self._read(run.first_batch_id))
        except BaseException:
            self._reader.close()
            raise

    def opened(self) -> None:
        """The run is open: whoever started it has seen the rules, and is not a task of it."""
        self._spark_context.setLocalProperty(self._stream.property_name, None)

    def writing(self, batch: Batch) -> None:
        """An attempt at the batch is about to be made, which sees the rules of now. Older runs are
        fenced by then.
        """
        self._show(self._read(batch.batch_id))

    def recorded(self) -> str:
        """The name of the record of what the epoch at hand sees, for its decision. Durable on
        return. An attempt that comes to no decision leaves none: the next one sees newer rules.
        """
        if not self._is_on_record:
            self._files.open()
            self._files.create_if_absent(self._name, msgspec.json.encode(self._seen))
            self._is_on_record = True
        return self._name

    def compute_again(self, batch_id: int, recorded: str | None) -> None:
        """The epoch is decided, and sees what its decision names; the rules of now where that was
        made without this stream.
        """
        self._show(self._on_record(recorded) if recorded else self._read(batch_id))

    def done(self, batch: Batch, completed: Completed) -> None:
        self.opened()  # what Spark runs ahead of the next batch must not see the rules of this one
        if completed.written:
            self.recorded()  # at_least_once decides nothing, and still has to know how far it read
        if batch.batch_id % PRUNE_EVERY == 0:
            self._prune(batch.batch_id - self._run.retained - 1)

    def close(self) -> None:
        self._reader.close()

    def _show(self, seen: Seen) -> None:
        """The thread of the query carries it; Spark takes it from there to the tasks."""
        self._spark_context.setLocalProperty(self._stream.property_name, seen.pairs)

    def _read(self, batch_id: int) -> Seen:
        """The view up to the topic's end, for an epoch that is not decided.

        A run reads the topic whole, once, whatever an earlier one had seen: what was removed
        meanwhile may have left no trace but that it is not there. So the view depends on the topic
        alone, and not on when a query began.
        """
        ends = self._reader.end_offsets()
        if ends == self._ends:
            return self._seen
        topic = self._reader.identity()
        if topic.is_another(self._seen.topic):
            where = another(self._reader.where, self._seen.topic, topic)
            raise CheckpointRefused("CONTROL_RECREATED", f"{self._run}: {where}")
        for record in self._reader.read_to(ends):
            self._apply(record)
        self._ends = ends
        view: dict[bytes, bytes] = {}
        for partition, last in sorted(self._last.items()):
            if None in last:
                raise RowsRefused(
                    "CONTROL_RULE",
                    f"{self._stream}: {last[None][:100]!r} in partition {partition} has no key, so "
                    "nobody knows which rule it is. Write it with its key; then write a record "
                    "without key and value into that partition, and start the query again. "
                    "Nothing was written.",
                )
            view |= last
        text = text_of(view)
        if text != self._seen.pairs:
            self._check(view, text)
            about = self._run.about(batch_id)
            self._run.emit(events.ControlChanged(*about, self._stream.topic, len(view)))
        seen = Seen(pairs=text, offsets=ends, topic_id=topic.topic_id, cluster_id=topic.cluster_id)
        if seen != self._seen:
            self._seen, self._is_on_record = seen, False
            # A run makes one attempt at an epoch, so no two attempts share a file.
            self._name = f"{batch_id:020d}-{self._run.incarnation}.json"
        return self._seen

    # ---- what is on record -------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Of the views, by epoch."""
        return sorted(filter(_VIEW.fullmatch, self._files.names()))

    def _newest(self) -> tuple[str, Seen]:
        """That of the latest epoch, with its name; of several attempts at it, what was read the
        furthest. Without a name where there is none.
        """
        names = self._names()
        latest = [(n, self._on_record(n)) for n in names if _epoch(n) == _epoch(names[-1])]
        none = "", Seen(pairs=text_of({}), offsets={})
        return max(latest, key=lambda each: sum(each[1].offsets.values()), default=none)

    def _on_record(self, name: str) -> Seen:
        """What is in the file that a decision names."""
        where, text = f"{self._files.where}/{name}", self._files.read(name)
        if text is None:
            raise damaged(where, "it is missing")
        try:
            return decoded(where, text, Seen)
        except msgspec.MsgspecError as error:
            raise damaged(where, error) from error

    def _prune(self, below_batch_id: int) -> None:
        """Forget what only epochs saw that Spark can no longer ask for. The latest one before them
        may be what the others see, too.
        """
        older = [name for name in self._names() if int(_epoch(name)) < below_batch_id]
        self._files.delete([name for name in older if _epoch(name) != _epoch(older[-1])])

    # ---- what is in the topic ----------------------------------------------------------------

    def _apply(self, record: LoggedRecord) -> None:
        last = self._last.setdefault(record.partition[1], {})
        if record.value is None:
            last.pop(record.key, None)
        else:
            last[record.key] = record.value

    def _check(self, view: View, text: str) -> None:
        """Decode once here: a rule that cannot be read is one clear error, not one in every
        task.
        """
        size_bytes = sum(len(k) + len(v) for k, v in view.items())
        if size_bytes > self._stream.max_bytes:
            raise RowsRefused(
                "CONTROL_SIZE",
                f"{self._stream}: its {len(view)} keys and values take {size_bytes} bytes, more "
                f"than max_bytes={self._stream.max_bytes}. Raise it, or join with a table instead: "
                "a control stream travels with every task. Nothing was written.",
            )
        try:
            self._stream.decoded(text)
        except Exception as error:
            raise RowsRefused(
                "CONTROL_RULE",
                f"{self._stream}: a rule cannot be decoded ({type(error).__name__}: {error}). "
                "Write a correct value, or null, for its key and start the query again. Nothing "
                "was written.",
            ) from error
