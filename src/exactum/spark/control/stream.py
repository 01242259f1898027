"""``control_stream``: a small topic of rules or settings that every task of an epoch sees in the
same state.

This is what Flink calls broadcast state. The driver reads the topic up to its end at the start of
each epoch and sends what it found along with the epoch's tasks. What a decided epoch saw is on
record, for a start that has to compute it again.

Workers import this module, so it imports neither pyspark nor a Kafka client at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import checked_servers

SIZE_MAX_BYTES = 1 << 20
"""Default of ``max_bytes``: what travels with every task should be small."""
PROPERTY = "exactum.control."
"""Prefix of the local property in which Spark carries a view to the tasks of a job."""

View = Mapping[bytes, bytes]
"""The last value of each key."""
Decoder = Callable[[bytes], Any]


def text(value: bytes) -> str:
    """UTF-8."""
    return value.decode()


def control_stream(
    topic: str,
    *,
    bootstrap_servers: str,
    key: Decoder = text,
    value: Decoder = text,
    max_bytes: int = SIZE_MAX_BYTES,
    consumer: Mapping[str, object] | None = None,
) -> ControlStream:
    """A topic of rules, for ``exactly_once(..., control=rules)`` and ``rules.current()`` in the
    query's functions.

    The last value of each key counts; a null value removes the key. Records without a key are not
    allowed. Where one key is written to several partitions, each partition has a last value of it,
    and that of the highest partition counts, whenever it was written; a null removes the key from
    its own partition.

    Args:
        topic: its name; it is read whole, from its beginning. ``cleanup.policy=compact`` keeps it
            small.
        bootstrap_servers: ``host:port`` or several, separated by commas.
        key: from the key's bytes to what ``current()`` shows; default UTF-8 text.
        value: the same for values, for example ``json.loads``. Both must be functions that Spark
            can ship.
        max_bytes: keys and values of the whole view together may not take more, since it travels
            with every task; default 1 MiB.
        consumer: further librdkafka settings (security).

    Raises:
        SettingRefused: an argument that cannot be.
    """
    where = f"control_stream({topic!r})"
    decoders: tuple[Any, ...] = (key, value)
    given: Any = consumer
    wrong = ""
    if not isinstance(topic, str) or not topic:
        wrong = "topic must be the name of a topic"
    elif not all(map(callable, decoders)):
        wrong = f"key={key!r} and value={value!r} must be functions of bytes"
    elif given is not None and not isinstance(given, Mapping):
        wrong = f"consumer={consumer!r} must be a dictionary of librdkafka's settings"
    elif type(max_bytes) is not int or max_bytes < 1:
        wrong = f"max_bytes={max_bytes!r} must be a whole number of bytes, one or more"
    if wrong:
        raise SettingRefused("CONTROL_ARGUMENT", f"{where}: {wrong}.")
    return ControlStream(
        topic,
        checked_servers(bootstrap_servers, where),
        key,
        value,
        max_bytes,
        dict(consumer or {}),
    )


@dataclass(eq=False, repr=False)
class ControlStream:
    """The user's handle. It travels to the tasks by pickle; there, ``current`` finds what Spark
    brought along.
    """

    topic: str
    bootstrap_servers: str
    key: Decoder
    value: Decoder
    max_bytes: int
    consumer: Mapping[str, object]
    _current: tuple[str, Mapping[Any, Any]] | None = field(default=None, init=False)
    """What ``current`` decoded last, and from which text."""

    def __repr__(self) -> str:
        return f"control_stream({self.topic!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read topics through nobody: neither addresses nor secrets need to travel.
        return {**self.__dict__, "consumer": {}, "_current": None}

    @property
    def property_name(self) -> str:
        return PROPERTY + self.topic

    def current(self) -> Mapping[Any, Any]:
        """The rules as this epoch sees them: decoded key to decoded value. Read-only; the same in
        every task.

        Raises:
            SettingRefused: called outside of an epoch, or the stream was not given to
                ``exactly_once(control=)``.
        """
        carried = self._find()
        # One task has one text, and the same string is equal to itself at once: a call for each row
        # costs no comparison of texts.
        decoded = self._current
        if decoded is None or decoded[0] != carried:
            self._current = decoded = (carried, MappingProxyType(self.decoded(carried)))
        return decoded[1]

    def decoded(self, view: str) -> dict[Any, Any]:
        """The view through the user's decoders, whose errors come as they are."""
        return {self.key(k): self.value(v) for k, v in view_of(view).items()}

    def _find(self) -> str:
        """The view of the epoch that this code runs in, as text: in a task, or on the driver in the
        thread of a query, which has its own.
        """
        from pyspark import SparkContext, TaskContext

        context = TaskContext.get() or SparkContext._active_spark_context
        found = None if context is None else context.getLocalProperty(self.property_name)
        if found is not None:
            return found
        raise SettingRefused(
            "CONTROL_OUTSIDE",
            f"{self}.current() was called outside of an epoch. Give the stream to the query, "
            "exactly_once(..., control=rules), and call current() within its functions (a UDF, a "
            "StatefulProcessor, rows=), with no persist() or count() before. Where there is a "
            "shuffle and no state, set spark.sql.adaptive.streaming.stateless.enabled=false.",
        )


def text_of(view: View) -> str:
    """The view as JSON text, always the same for the same content: pairs of key and value in
    base64.
    """
    return msgspec.json.encode(sorted(view.items())).decode()


def view_of(text: str) -> dict[bytes, bytes]:
    """The opposite of ``text_of``."""
    return dict(msgspec.json.decode(text, type=list[tuple[bytes, bytes]]))
