"""Rows that a sink refused: the epoch stops with them, or they go to its dead letters: the original
bytes, where from, who and why, and the whole row. Nothing here fails for what a row holds.

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.errors import RowsRefused
from exactum.protocol.sink import Rejection, TaskName, WriteOrder, Writer, WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_PREFIX = "exactum."
"""Where dead letters go to Kafka, what is a column elsewhere is a header ``exactum.<column>``,
as text.
"""


@dataclass(frozen=True)
class DeadLetterPlan:
    """Where rows go that a sink refuses: a writer factory, and the columns it takes them in."""

    writers: WriterFactory
    columns: tuple[str, ...]


class Rejections:
    """Takes what the sinks of one task refuse: writes it to the dead letters, or stops the
    epoch.
    """

    def __init__(self, plan: DeadLetterPlan | None, order: WriteOrder, task: TaskName) -> None:
        self._plan = plan
        self._order = order
        self._task = task
        self._writer: Writer | None = None

    def take(self, rejection: Rejection, sink: str, writers: list[Writer]) -> None:
        """Write it, through a writer that is opened at need and appended to ``writers``.

        Raises:
            RowsRefused: there are no dead letters, or they refuse it too.
        """
        if self._plan is None:
            raise RowsRefused(
                "ROWS_REFUSED",
                f"{sink} can never take {_count(rejection)} of epoch {self._order.batch_id}: "
                f"{_first(rejection)} Nothing of the epoch is visible. Correct the rows in the "
                "query, change the table, or give dead_letters= to exactly_once() so that such "
                "rows are put aside.",
            )
        if self._writer is None:
            self._writer = self._plan.writers.open(self._order, self._task)
            writers.append(self._writer)
        again = self._writer.write(dead_letters(rejection, sink, self._plan.columns))
        if again is not None and again.reasons:
            raise RowsRefused(
                "DEAD_LETTERS_REFUSED",
                f"The dead letters can never take {_count(again)} which {sink} refused in epoch "
                f"{self._order.batch_id}: {_first(again)} Nothing of the epoch is visible. Let the "
                "dead letters' target take larger rows: of a topic, raise max.message.bytes.",
            )


RULES_SHOWN_MAX = 3
HAS = ", the row has "
"""What follows the rule in a reason: what this row has instead."""


def _count(rejection: Rejection) -> str:
    count = len(rejection.reasons)
    return "a row" if count == 1 else f"{count} rows"


def _first(rejection: Rejection) -> str:
    """One row for each rule, and how many more break it: a rule is said once."""
    rows_of: dict[str, list[int]] = {}
    for place, reason in enumerate(rejection.reasons):
        rows_of.setdefault(_rule(reason), []).append(place)
    shown = []
    for places in list(rows_of.values())[:RULES_SHOWN_MAX]:
        more = "" if len(places) == 1 else f" ({len(places) - 1} more by this rule)"
        shown.append(f"{rejection.reasons[places[0]]}{_source(rejection.rows, places[0])}{more}")
    others = sum(map(len, list(rows_of.values())[RULES_SHOWN_MAX:]))
    return f"{'; '.join(shown)}{f'; and {others} more by other rules' if others else ''}."


def _rule(reason: str) -> str:
    """The reason without what names the row and what the row has, as far as a sink says them (see
    ``sinks.rows``).
    """
    return (reason.partition(": column ")[2] or reason).partition(HAS)[0]


def _source(rows: pa.RecordBatch, place: int) -> str:
    """Where the row came from, if the frame still has the columns of Spark's Kafka source."""
    names = ("topic", "partition", "offset")
    if not all(rows.schema.names.count(name) == 1 for name in names):
        return ""
    from exactum.values.shown import shown

    topic, partition, offset = (shown(rows.column(name).slice(place, 1))[0] for name in names)
    return f" (topic {topic}, partition {partition}, offset {offset})"


def dead_letters(rejection: Rejection, sink: str, columns: Sequence[str]) -> pa.RecordBatch:
    """An Arrow record batch with ``columns`` (names of ``DEAD_LETTER_COLUMNS``, or key, value and
    headers).

    ``key`` and ``value`` are the frame's columns of that name where they are text or bytes;
    otherwise the key is null and the value is the row as JSON text. ``row_json`` is the row in any
    case; in Kafka's headers without what stands in key and value already, and not where that is
    all.
    """
    import pyarrow as pa

    rows = rejection.rows
    row_json = _json(rows, rows.schema.names)
    value = _bytes_of(rows, "value")
    made: dict[str, Any] = {
        "key": _bytes_of(rows, "key"),
        "value": value if value is not None else row_json.cast(pa.binary()),
        "sink": _texts([sink] * rows.num_rows),
        "error": _texts(rejection.reasons),
        "source_topic": _column(rows, "topic", pa.string()),
        "source_partition": _column(rows, "partition", pa.int32()),
        "source_offset": _column(rows, "offset", pa.int64()),
        "source_timestamp": _column(rows, "timestamp", pa.timestamp("us", "UTC")),
        "row_json": row_json,
    }
    if made["key"] is None:
        made["key"] = pa.nulls(rows.num_rows, pa.binary())
    if "headers" in columns:
        kept = {name for name in ("key", "value") if _bytes_of(rows, name) is not None}
        others = [name for name in rows.schema.names if name not in kept]
        in_value = value is None or not others
        made["row_json"] = pa.nulls(rows.num_rows, pa.string()) if in_value else _json(rows, others)
        made["headers"] = _headers(made)
    return pa.RecordBatch.from_arrays([made[name] for name in columns], names=list(columns))


def _bytes_of(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """The bytes of a column of this name, None where there is none, or none of bytes."""
    import pyarrow as pa

    from exactum.values.nested import is_bytes, is_text

    if name not in rows.schema.names:
        return None
    kind = rows.schema.field(name).type
    if not is_text(kind) and not is_bytes(kind):
        return None
    return rows.column(name).cast(pa.binary())


def _json(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Each row as a JSON object of these columns, without those that are null."""
    import pyarrow as pa

    from exactum.values.json_text import json_texts

    arrays = [_with_json(rows.column(rows.schema.get_field_index(name))) for name in names]
    fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
    if not fields:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    return json_texts(pa.StructArray.from_arrays(arrays, fields=fields), keep_bytes=True).cast(
        pa.string()
    )


def _with_json(values: pa.Array) -> pa.Array:
    """The values in a type that has JSON: intervals are their microseconds."""
    import pyarrow as pa

    from exactum.values.json_text import is_writable

    if is_writable(values.type):
        return values
    if pa.types.is_duration(values.type):
        return values.view(pa.int64())
    return pa.array([f"<{values.type}>"] * len(values), pa.string())


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """A column of the frame if it has the type that Spark's Kafka source gives it, else nulls.

    An instant outside of the years 1 to 9999, which few targets have, is null too: ``row_json`` has
    it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from exactum.values import times
    from exactum.values.nested import is_text, repaired

    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    values = rows.column(name)
    if pa.types.is_timestamp(values.type) and pa.types.is_timestamp(kind):
        micros = times.micros_of(values)
        known = pc.and_(
            pc.greater_equal(micros, times.MICROS_FIRST), pc.less_equal(micros, times.MICROS_LAST)
        )
        return pc.if_else(known, micros, pa.scalar(None, pa.int64())).view(kind)
    if pa.types.is_string(kind) and is_text(values.type):
        return repaired(values).cast(kind)
    return values if values.type == kind else pa.nulls(rows.num_rows, kind)


def _headers(made: dict[str, Any]) -> pa.Array:
    """One list of (name, UTF-8 text) for each row; what is null is left out."""
    import pyarrow as pa

    columns = {n: made[n].to_pylist() for n in made if n not in ("key", "value")}
    rows = [
        [
            {"key": HEADER_PREFIX + n, "value": _text(v[i]).encode()}
            for n, v in columns.items()
            if v[i] is not None
        ]
        for i in range(len(made["value"]))
    ]
    return pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def _texts(texts: Sequence[str]) -> pa.Array:
    """Text of ours, which may quote half a character of a user's."""
    import pyarrow as pa

    return pa.array(
        [text.encode("utf-8", "backslashreplace").decode() for text in texts], pa.string()
    )


def _text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
