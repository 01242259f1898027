"""``decode``: the bytes of Kafka records as columns, and what becomes of records that are not what
they should be.

    frame --decode, mark what is bad--> observe (counts) --leave out what is bad--> frame of good
    records

Bad records cannot flow on through a plan that aggregates or joins. So they are only counted on
their way, as Spark's observed metrics; ``bad_records`` writes them to the dead letters where an
epoch has some. The node of the metrics also keeps Spark from moving filters of the user below the
one that marks: no record is left out before it was looked at.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import Enum
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from exactum.errors import FrameRefused, RowsRefused, SettingRefused
from exactum.formats.avro_format import Avro
from exactum.formats.format import Bound, Format, arrow_type
from exactum.formats.function_format import Function
from exactum.formats.text_format import String
from exactum.spark.decoding.decode_task import BAD, DecodeTask, Decoding, null_reason, refusal_of
from exactum.spark.jvm import frames
from exactum.spark.jvm.frames import frame_of, logical_plan, node_names
from exactum.spark.jvm.java_class import JvmError, java_class
from exactum.spark.query import is_connect
from exactum.spark.runtime.spark_jars import FORMAT
from exactum.spark.write.failure import MARKER

SOURCE_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
}
"""What ``decode`` needs of Spark's Kafka source, by Spark's names of the types."""
HEADERS = "array<struct<key:string,value:binary>>"
"""The type of the column ``headers``, which that source has with ``includeHeaders``."""
MARKS = 63
PLACES = 2**32
METRIC_PREFIX = "exactum.decode."
"""Observed metrics with this prefix are ours; the policy and a unique number follow."""
BAD_TYPE = StructType(
    [
        StructField("error", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
READ_AGAIN = (
    "Project",
    "Filter",
    "SubqueryAlias",
    "EventTimeWatermark",
    "CollectMetrics",
    "Union",
    "StreamingRelationV2",
)
"""What may stand below a decoding with dead letters: it is computed a second time for an epoch
with bad records.
"""


class Policy(Enum):
    """What becomes of a bad record."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


def decode(
    frame: DataFrame,
    value: Format | None = None,
    key: Format | None = None,
    *,
    on_error: str = "fail",
    nulls: str = "keep",
) -> DataFrame:
    """The frame with ``value`` (and ``key``) decoded, and without the records that cannot be.

    Args:
        frame: a streaming frame of ``read_kafka``, with its columns topic, partition, offset,
            timestamp, key and value as they came. Columns may be added and rows filtered out
            before.
        value: how values are read: ``String()``, ``Json(...)``, ``Avro(...)``, ``Protobuf(...)``,
            ``Function(...)``. None leaves them as they are.
        key: the same for keys.
        on_error: what becomes of a bad record, key or value. "fail" (default): the query stops with
            ``RowsRefused`` that names topic, partition, offset and reason; nothing of the epoch is
            visible. "skip": it is left out and counted (``events.RowsSkipped``). "dead_letter": it
            goes to the epoch's dead letters (``exactly_once(dead_letters=...)``), in the same epoch
            under the same decision, with its original bytes, the reason and where it came from.
        nulls: "keep" (default): a null value or key (a tombstone) is null after decoding. "error":
            it is bad.

    Returns:
        The frame; a struct, an array or a plain column in the place of what was decoded, all else
        as it was.

    Raises:
        FrameRefused: the frame is not one of ``read_kafka``, or lacks a column (headers, for Avro
            with a registry), or cannot be read twice.
        SettingRefused: a format that cannot be decoded, an unknown policy, a package that is
            missing, or over Spark Connect dead letters of a format or a frame that may give others
            the second time.
        Unavailable: a schema registry did not answer.
    """
    policy = _choice(on_error, "on_error", [one.value for one in Policy])
    null_is_bad = _choice(nulls, "nulls", ["keep", "error"]) == "error"
    given = {
        name: _format(one, name)
        for name, one in (("key", key), ("value", value))
        if one is not None
    }
    if not given:
        raise SettingRefused(
            "DECODE_ARGUMENT", "decode() was told to decode nothing. Give value=, key= or both."
        )
    _check_frame(frame, Policy(policy))
    bound = {name: one.bind() for name, one in given.items()}
    if is_connect(frame) and on_error == Policy.DEAD_LETTER.value:
        _refuse_unsteady(frame, given, bound)
    if not _has_headers(frame) and any(
        bound[name].framed and isinstance(one, Avro) for name, one in given.items()
    ):
        # A value whose id is in a header may look as if it began with another: no JSON and no
        # Protobuf does.
        raise FrameRefused(
            "DECODE_FRAME",
            "decode() needs the headers of records that are Avro with a registry: a schema's id "
            "may be there. Say includeHeaders=True in read_kafka, and .drop('headers') afterwards.",
        )
    fail = Policy(policy) is Policy.FAIL
    nulls_are_bad = tuple(bound) if null_is_bad else ()
    if (timed := _with_null_times(frame)) is not None:
        frame, nulls_are_bad = timed, (*nulls_are_bad, "timestamp")
    if all(isinstance(one, String) for one in given.values()):
        marked, result = _text_marked(frame, list(bound), fail, nulls_are_bad)
    else:
        marked, result = _marked(frame, bound, fail, nulls_are_bad), dict[str, Column]()
    name = f"{METRIC_PREFIX}{policy}.{uuid.uuid4().hex[:8]}"
    observed = marked.observe(name, *_counted(Policy(policy)))
    good = observed.filter(f.col(BAD).isNull()).drop(BAD)
    return good.withColumns(result) if result else good


def _has_headers(frame: DataFrame) -> bool:
    return dict(frame.dtypes).get("headers") == HEADERS


def _with_null_times(frame: DataFrame) -> DataFrame | None:
    """The frame with null for each timestamp that Spark cannot hold; None where such a record is an
    error of the source: it makes rows, or something stands before the decoding.
    """
    if is_connect(frame):
        return None
    try:
        source = java_class(frame.sparkSession, FORMAT)
        plan = source.withNullTimes(logical_plan(frame))
    except JvmError:  # there is no such class, or that of another exactum
        return None
    return None if plan is None else frame_of(frame.sparkSession, plan)


def _counted(policy: Policy) -> list[Column]:
    """Places cost columns that are not read otherwise, so only where they are compared."""
    number, *places = counts_of(f.col(BAD).isNotNull())
    return [number, *places] if policy is Policy.DEAD_LETTER else [number]


def counts_of(is_bad: Column) -> list[Column]:
    """So many bad records, the sum of their places, and their marks (bigint): the fields of
    ``bad_records.Bad``, as aggregates.

    A record's place is a hash of topic, partition and offset, small enough that the sum stays
    within 63 bits over more bad records than an epoch can have; its mark is one bit of 63.
    """
    place = f.expr(f"pmod(xxhash64(topic, partition, offset), {PLACES}L)")
    mark = f.expr(f"shiftleft(1L, cast(pmod(xxhash64(topic, partition, offset), {MARKS}) AS int))")
    return [
        f.count(f.when(is_bad, 1)).alias("number"),
        f.coalesce(f.sum(f.when(is_bad, place)), f.lit(0)).alias("places"),
        f.coalesce(f.bit_or(f.when(is_bad, mark)), f.lit(0)).alias("marks"),
    ]


def _marked(
    frame: DataFrame, bound: dict[str, Bound], fail: bool, nulls_are_bad: tuple[str, ...]
) -> DataFrame:
    """The frame decoded by Python, with the column ``BAD``."""
    decodings: list[Decoding] = []
    fields = {field.name: field for field in frame.schema.fields}
    has_headers = _has_headers(frame)
    for name, one in bound.items():
        outward = one.column
        header = f"__{name}_schema_id" if one.framed and has_headers else ""
        decodings.append(Decoding(name, one.reader, arrow_type(outward, name), header))
        fields[name] = StructField(name, outward)
    schema = StructType([*fields.values(), StructField(BAD, BAD_TYPE)])
    task = DecodeTask(tuple(decodings), fail, nulls_are_bad)
    if is_connect(frame):
        return frame.mapInArrow(task, schema)
    return frames.applied(frame, frames.call(frame.columns, task, schema))


def _text_marked(
    frame: DataFrame, names: list[str], fail: bool, nulls_are_bad: tuple[str, ...]
) -> tuple[DataFrame, dict[str, Column]]:
    """The frame with the column ``BAD``, found by Spark alone, and what its text columns are
    then.
    """
    invalid = {name: f.col(name).isNotNull() & ~f.is_valid_utf8(f.col(name)) for name in names}
    reasons = [
        f.when(own, f.concat(f.lit(f"{name}: "), _not_utf_8(f.col(name))))
        for name, own in invalid.items()
    ]
    reasons += [f.when(f.col(name).isNull(), f.lit(null_reason(name))) for name in nulls_are_bad]
    reason = f.concat_ws("; ", *reasons)
    bad = f.struct(reason.alias("error"), f.col("key").alias("key"), f.col("value").alias("value"))
    if fail:
        bad = f.raise_error(_raised(reason)).cast(BAD_TYPE)
    marked = frame.withColumn(BAD, f.when(reason != "", bad).otherwise(f.lit(None).cast(BAD_TYPE)))
    return marked, {name: f.col(name).cast(StringType()) for name in names}


def _not_utf_8(data: Column) -> Column:
    """As ``format.not_utf_8``: where the first U+FFFD stands that Spark puts for bytes that are no
    UTF-8, once those that are in the text are others of as many bytes.
    """
    own = f.replace(data.cast(StringType()), f.lit("\ufffd"), f.lit("\ufffc"))
    place = f.octet_length(f.substring_index(f.make_valid_utf8(own), "\ufffd", 1))
    byte = f.lower(f.hex(f.substring(data, place + 1, f.lit(1))))
    return f.concat(f.lit("it is not valid UTF-8: byte "), place, f.lit(" is 0x"), byte)


def _raised(reason: Column) -> Column:
    """The text of the error that a task raises for a bad record; ``failure.carried_by`` makes it
    ours again.
    """
    where = f.concat(
        f.col("topic"), f.lit("-"), f.col("partition"), f.lit(" at offset "), f.col("offset")
    )
    before, _, rest = refusal_of("\0", "\1").partition("\0")
    between, _, after = rest.partition("\1")
    message = f.concat(f.lit(before), where, f.lit(between), reason, f.lit(after))
    error = f.lit(RowsRefused.__name__).alias("error")
    arguments = f.array(f.lit("RECORD_BAD"), message).alias("arguments")
    return f.concat(f.lit(f"{MARKER} "), f.to_json(f.struct(error, arguments)))


def _check_frame(frame: DataFrame, policy: Policy) -> None:
    if not isinstance(frame, DataFrame):
        raise SettingRefused(
            "DECODE_ARGUMENT",
            f"decode() was given {type(frame).__name__} as its frame, and takes a DataFrame.",
        )
    if not frame.isStreaming:
        raise FrameRefused(
            "DECODE_FRAME",
            "decode() takes a streaming frame of exactum.read_kafka(), and this one is not "
            "streaming.",
        )
    found = dict(frame.dtypes)
    wrong = [f"{name} {kind}" for name, kind in SOURCE_COLUMNS.items() if found.get(name) != kind]
    if wrong:
        raise FrameRefused(
            "DECODE_FRAME",
            "decode() needs the columns of exactum.read_kafka() as they came; missing or changed: "
            f"{', '.join(wrong)}. Decode first, in one call for key and value, and transform "
            "afterwards.",
        )
    twice = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
    if twice:
        raise FrameRefused(
            "DECODE_FRAME",
            f"decode(): the frame has more than one column named {', '.join(twice)}.",
        )
    if policy is not Policy.DEAD_LETTER or is_connect(frame):
        return
    other = sorted(set(node_names(frame)) - set(READ_AGAIN))
    if other:
        raise FrameRefused(
            "DECODE_FRAME",
            "decode(on_error='dead_letter') reads the records of an epoch with bad ones again, "
            "which is safe only where nothing but selections and filters stands before it; here "
            f"is also {', '.join(other)}. Decode first.",
        )


def _refuse_unsteady(
    frame: DataFrame, given: Mapping[str, Format], bound: Mapping[str, Bound]
) -> None:
    """Over Spark Connect records are decoded once more for the dead letters, and nobody sees
    whether they give the same then.

    Raises:
        SettingRefused: they may give something else.
    """
    plain: Any = frame
    unsteady = [
        name for name, one in given.items() if isinstance(one, Function) or bound[name].framed
    ]
    is_source = plain._plan.plan(plain.sparkSession.client).read.HasField("data_source")
    if unsteady or not is_source:
        raise SettingRefused(
            "SPARK_CONNECT",
            "decode(on_error='dead_letter') takes over Spark Connect the frame of read_kafka "
            "itself, and formats that depend on a record's bytes alone: no Function, and no schema "
            "registry. Decode first, or use a classic session (docs/connect.md).",
        )


def _format(given: Any, name: str) -> Format:
    if isinstance(given, Format) and not isinstance(given, type):
        return given
    raise SettingRefused(
        "DECODE_ARGUMENT",
        f"decode({name}={given!r}) is no format. Give exactum.String(), Json(...), Avro(...), "
        "Protobuf(...), or Function(f, returns) for a function from bytes to a value.",
    )


def _choice(given: str, name: str, known: list[str]) -> str:
    if given not in known:
        raise SettingRefused(
            "DECODE_ARGUMENT",
            f"decode({name}={given!r}) is not known; it may be {' or '.join(map(repr, known))}.",
        )
    return given
