"""Brings a control stream's rules to an epoch: read to the end, recorded, and sent along with its
tasks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

from exactum import events
from exactum.checkpoint.layout import CONTROL
from exactum.errors import CheckpointRefused, RowsRefused
from exactum.kafka.topics.topic_reader import TopicReader, TopicRecord, another, checked
from exactum.protocol.model import Completed
from exactum.spark.control.record import ControlRecords, Seen, View, digest_of, text_of
from exactum.spark.control.stream import ControlStream
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext

PRUNE_EVERY = 20
"""Epochs between two prunings of the records."""


class ControlListener(EpochListener):
    """One control stream of one run. Reads at once, for the run's first batch.

    Raises:
        CheckpointRefused: the checkpoint is not on a local or shared file system; or the topic was
            made anew.
        RowsRefused: a record has no key, cannot be decoded, or the whole is too large.
        SettingRefused: the topic does not exist.
        Unavailable: the broker did not answer.
    """

    def __init__(self, stream: ControlStream, context: RunContext) -> None:
        running = context.query
        if running.folder is None:
            raise CheckpointRefused(
                f"{running}: {stream} needs a checkpoint on a local or shared file system, where "
                "it records what each epoch saw. Nothing was written."
            )
        self._stream = stream
        self._context = context
        self._spark_context: Any = context.session.sparkContext
        self._running = running
        name = re.sub(r"[^A-Za-z0-9._-]", "_", stream.topic)
        self._records = ControlRecords(running.folder / CONTROL / name)
        newest = self._records.newest()
        self._seen = newest or Seen(digest_of(text_of({})), text_of({}), {})
        self._last: dict[int, dict[bytes, bytes]] = {}  # by partition: the last value of each key
        self._ends: Mapping[int, int] | None = (
            None  # up to which this run has read; None: nothing yet
        )
        self._reader = TopicReader(
            stream.topic,
            stream.bootstrap_servers,
            checked(stream.consumer, repr(stream)),
            self._seen.offsets,
        )
        self._shown_batch, self._thread = -1, threading.get_ident()
        try:
            # Not put on record yet: a start that is refused must not leave rules to a later one.
            batch_id = context.first_batch_id
            self._show(batch_id, self._records.read(batch_id) or self._read(batch_id))
        except BaseException:
            self._reader.close()
            raise

    def begin(self, batch: Batch) -> None:
        seen = self._records.read(batch.batch_id)
        if seen is None:
            found = (
                self._seen if batch.batch_id == self._shown_batch else self._read(batch.batch_id)
            )
            seen = self._records.record(batch.batch_id, found)
        self._show(batch.batch_id, seen)

    def done(self, batch: Batch, completed: Completed) -> None:
        if batch.batch_id % PRUNE_EVERY == 0:
            self._records.prune(batch.batch_id - self._running.retained - 1)

    def close(self) -> None:
        # What the thread of the query carries goes with it; after spark.stop() there is nobody to
        # take it back from.
        self._reader.close()
        self._stream.forget_driver(self._thread)

    def _show(self, batch_id: int, seen: Seen) -> None:
        self._thread = threading.get_ident()
        self._stream.show_driver(seen.text)
        self._spark_context.setLocalProperty(self._stream.property_name, seen.text)
        self._spark_context.setLocalProperty(self._stream.batch_property_name, str(batch_id))
        self._shown_batch = batch_id

    def _read(self, batch_id: int) -> Seen:
        """The view up to the topic's end, for an epoch that has no record yet.

        A run reads the topic whole, once, whatever an earlier one had seen: what was removed
        meanwhile may have left no trace but that it is not there. So the view depends on the topic
        alone, and not on when a query began.
        """
        ends = self._reader.end_offsets()
        if ends == self._ends:
            return self._seen
        if self._ends is None:
            self._recognise()
        for record in self._reader.read_to(ends):
            self._apply(record)
        self._ends = ends
        view: dict[bytes, bytes] = {}
        for _, last in sorted(self._last.items()):
            view |= last
        text = text_of(view)
        if text != self._seen.text:
            self._check(view, text)
            about = self._context.about(batch_id)
            self._context.emit(events.ControlChanged(*about, self._stream.topic, len(view)))
        self._seen = Seen(digest_of(text), text, ends)
        return self._seen

    def _recognise(self) -> None:
        was, now = self._records.topic(), self._reader.identity()
        if was is None:
            self._records.record_topic(now)
        elif now.is_another(was):
            raise CheckpointRefused(f"{self._running}: {another(self._reader.where, was, now)}")

    def _apply(self, record: TopicRecord) -> None:
        if record.key is None:
            raise RowsRefused(
                f"{self._stream}: the record at partition {record.partition}, offset "
                f"{record.offset} has no key; the last value of each key is what counts. Nothing "
                "was written."
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
                f"{self._stream}: its {len(view)} keys and values take {size_bytes} bytes, more "
                f"than max_bytes={self._stream.max_bytes}. Raise it, or join with a table instead: "
                "a control stream travels with every task. Nothing was written."
            )
        try:
            self._stream.decoded(text)
        except Exception as error:
            raise RowsRefused(
                f"{self._stream}: a rule cannot be decoded ({type(error).__name__}: {error}). "
                "Write a correct value, or null, for its key and start the query again. Nothing "
                "was written."
            ) from error
