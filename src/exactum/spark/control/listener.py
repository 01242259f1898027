"""Brings a control stream's rules to an epoch: read to the end, sent along with its tasks, and on
record when it is decided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exactum import events
from exactum.checkpoint.layout import CONTROL
from exactum.errors import CheckpointRefused, RowsRefused
from exactum.kafka.topic import TopicIdentity
from exactum.kafka.topic_reader import TopicReader, TopicRecord, another, checked
from exactum.protocol.model import Completed
from exactum.protocol.sink import WriteOrder
from exactum.spark.control.record import ControlRecords, Seen, View, record_name, text_of
from exactum.spark.control.stream import ControlStream
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.query import Run

PRUNE_EVERY = 20
"""Epochs between two prunings of the records."""


class ControlListener(EpochListener):
    """One control stream of one run: one view at a time, that of the epoch at hand.

    Raises:
        CheckpointRefused: the checkpoint is not on a local or shared file system; or the topic was
            made anew.
        RowsRefused: a record has no key, cannot be decoded, or the whole is too large.
        SettingRefused: the topic does not exist.
        Unavailable: the broker did not answer.
    """

    def __init__(self, stream: ControlStream, run: Run) -> None:
        if run.folder is None:
            raise CheckpointRefused(
                "CONTROL_CHECKPOINT",
                f"{run}: {stream} needs a checkpoint on a local or shared file system, where "
                "it records what decided epochs saw. Nothing was written.",
            )
        self.topic = stream.topic
        self._stream = stream
        self._run = run
        self._spark_context: Any = run.session.sparkContext
        name = re.sub(r"[^A-Za-z0-9._-]", "_", stream.topic)
        self._records = ControlRecords(run.folder / CONTROL / name)
        newest = self._records.newest()
        self._seen = newest or Seen(text_of({}), {}, TopicIdentity(None, None), "")
        self._is_on_record = newest is not None
        self._last: dict[int, dict[bytes, bytes]] = {}  # by partition: the last value of each key
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
            self._show(newest or self._read(run.first_batch_id))
        except BaseException:
            self._reader.close()
            raise

    def opened(self) -> None:
        """The run is open: whoever started it has seen the rules, and is not a task of it."""
        self._spark_context.setLocalProperty(self._stream.property_name, None)

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        self._show(self._read(batch.batch_id))

    def recorded(self) -> str:
        """The name of the record of what the epoch at hand sees, for its decision. Durable on
        return. An attempt that comes to no decision leaves none: the next one sees newer rules.
        """
        if not self._is_on_record:
            self._records.create(self._seen)
            self._is_on_record = True
        return self._seen.name

    def compute_again(self, batch_id: int, recorded: str | None) -> None:
        """The epoch is decided, and sees what its decision names; the rules of now where that was
        made without this stream.
        """
        self._show(self._records.read(recorded) if recorded else self._read(batch_id))

    def done(self, batch: Batch, completed: Completed) -> None:
        self.opened()  # what Spark runs ahead of the next batch must not see the rules of this one
        if completed.written:
            self.recorded()  # at_least_once decides nothing, and still has to know how far it read
        if batch.batch_id % PRUNE_EVERY == 0:
            self._records.prune(batch.batch_id - self._run.retained - 1)

    def close(self) -> None:
        self._reader.close()

    def _show(self, seen: Seen) -> None:
        """The thread of the query carries it; Spark takes it from there to the tasks."""
        self._spark_context.setLocalProperty(self._stream.property_name, seen.text)

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
        for _, last in sorted(self._last.items()):
            view |= last
        text = text_of(view)
        if text != self._seen.text:
            self._check(view, text)
            about = self._run.about(batch_id)
            self._run.emit(events.ControlChanged(*about, self._stream.topic, len(view)))
        name = record_name(batch_id, self._run.incarnation)
        seen = Seen(text, ends, topic, name)
        if seen != self._seen:
            self._seen, self._is_on_record = seen, False
        return self._seen

    def _apply(self, record: TopicRecord) -> None:
        if record.key is None:
            raise RowsRefused(
                "CONTROL_RULE",
                f"{self._stream}: the record at partition {record.partition}, offset "
                f"{record.offset} has no key; the last value of each key is what counts. Nothing "
                "was written.",
            )
        last = self._last.setdefault(record.partition, {})
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
