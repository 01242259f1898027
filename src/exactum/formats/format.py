"""A record format: what the user names, what it is on the driver, and what reads in a task; and the
types of a decoded record.

    Json(...), Avro(...), ... --bind (driver)--> Bound: Spark's type and a maker of readers
    --pickled--> a reader (task): from the bytes of a record to a value

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from exactum.errors import ExactumError, SettingRefused
from exactum.packages import not_installed

if TYPE_CHECKING:
    import pyarrow as pa

Reader = Callable[[bytes], Any]
"""From the bytes of a record to what Arrow takes; whatever it raises says why the record is bad,
but for errors of ``exactum.errors``, which are no property of a record. Used by one thread.
"""

REASON_CHARS_MAX = 500
"""How much of an error's text is kept for a dead letter."""


class BadRecord(Exception):
    """A record is not what its format says; the text says why. It stands for this record only."""


@dataclass(frozen=True)
class Bound:
    """A format with everything looked up: ``kind`` is Spark's type of what is decoded; ``reader``,
    which is picklable, makes a ``Reader`` in a task.

    ``framed``: each record has the id of a registry's schema, before it or in a header.
    """

    kind: Any
    reader: Callable[[], Reader]
    framed: bool = False

    @property
    def column(self) -> Any:
        """Spark's type of the decoded column in a frame: bad rows are null, whatever is in them."""
        from pyspark.sql.types import StructType

        return StructType().add("decoded", self.kind).toNullable()["decoded"].dataType


@runtime_checkable
class Format(Protocol):
    """How the bytes of a key or a value are read. What the user makes; connects to nothing until it
    is bound.
    """

    def bind(self) -> Bound:
        """
        Raises:
            SettingRefused: it cannot be decoded into a column of Spark, or a package is missing.
            Unavailable: the schema registry did not answer.
        """


def reason_of(error: BaseException) -> str:
    """An error as the reason of one bad record: one line of text that every target of dead letters
    can take.
    """
    text = (
        " ".join(str(error).split()).replace("\0", r"\0").encode(errors="backslashreplace").decode()
    )
    if not isinstance(error, BadRecord):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text[:REASON_CHARS_MAX]


def not_utf_8(error: UnicodeDecodeError) -> str:
    """Why a text is bad."""
    return f"it is not valid UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"


def text_of(data: bytes, where: str = "") -> str:
    """
    Raises:
        BadRecord: they are no UTF-8; ``where`` begins the reason.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"{where}{not_utf_8(error)}") from None


def require(package: str, extra: str, format_name: str) -> None:
    """
    Raises:
        SettingRefused: the package that a format is read with is not installed.
    """
    try:
        importlib.import_module(package)
    except ImportError:
        raise SettingRefused(
            "PACKAGE_MISSING", not_installed(f"{format_name} needs", package, extra)
        ) from None


def decoded(column: pa.Array, kind: pa.DataType, read: Reader) -> tuple[pa.Array, dict[int, str]]:
    """From an Arrow array of binary to one of the Arrow type ``kind``, and a reason for each row
    that is bad. A null stays null and is not bad; a bad row is null.

    Raises:
        ExactumError: of the reader, as Unavailable of a schema registry that did not answer.
    """
    import pyarrow as pa

    values: list[Any] = []
    reasons: dict[int, str] = {}
    append = values.append
    for row, data in enumerate(column.to_pylist()):
        try:
            append(None if data is None else read(data))
        except (ExactumError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the record's: the policy decides)
            append(None)
            reasons[row] = reason_of(error)
    try:
        return pa.array(values, kind), reasons
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        pass  # one of them does not fit: find out which
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            values[row] = None
            reasons[row] = reason_of(BadRecord(f"it does not fit its column: {error}"))
    return pa.array(values, kind), reasons


# ---- types ---------------------------------------------------------------------------------------


def arrow_type(kind: Any, where: str) -> pa.DataType:
    """Arrow's type for one of Spark's; ``where`` names the record in errors.

    Raises:
        SettingRefused: a decoded record cannot have this type.
    """
    import pyarrow as pa
    from pyspark.sql import types as t

    def of(one: Any) -> pa.DataType:
        if isinstance(one, t.StructType):
            twice = sorted({name for name in one.names if one.names.count(name) > 1})
            if twice:
                raise SettingRefused(
                    "DECODE_TYPE",
                    f"{where}: a struct has two fields of the name {', '.join(twice)}, and nobody "
                    "can tell which one a record means. Rename or remove one.",
                )
            return pa.struct([pa.field(f.name, of(f.dataType), f.nullable) for f in one.fields])
        if isinstance(one, t.ArrayType):
            return pa.list_(pa.field("element", of(one.elementType), one.containsNull))
        if isinstance(one, t.MapType):
            if isinstance(one.keyType, t.FloatType):
                raise SettingRefused(
                    "DECODE_TYPE",
                    f"{where}: a map cannot have floats as its keys, because two numbers may "
                    "become one. Use double, decimal or string.",
                )
            if isinstance(one.keyType, t.StructType | t.ArrayType | t.MapType):
                raise SettingRefused(
                    "DECODE_TYPE",
                    f"{where}: a map cannot have {one.keyType.typeName()}s as its keys. Use a "
                    "plain type, or an array of structs in place of the map.",
                )
            key = pa.field("key", of(one.keyType), False)
            return pa.map_(key, pa.field("value", of(one.valueType), one.valueContainsNull))
        if isinstance(one, t.DecimalType):
            return pa.decimal128(one.precision, one.scale)
        found = _atoms().get(type(one))
        if found is None:
            raise SettingRefused(
                "DECODE_TYPE",
                f"{where} cannot be decoded into {one.simpleString()}. Use string, binary, "
                "boolean, tinyint, smallint, int, bigint, float, double, decimal, date, "
                "timestamp, timestamp_ntz, and structs, arrays and maps.",
            )
        return found

    return of(kind)


def spark_type(given: Any, where: str) -> Any:
    """Spark's type for what the user gave: a type, or its DDL (``"id bigint not null, name
    string"``).

    Raises:
        SettingRefused: it is neither.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import types as t

    if isinstance(given, t.DataType):
        return given
    if not isinstance(given, str) or not given.strip():
        raise SettingRefused(
            "DECODE_TYPE",
            f"{where} needs a type of Spark or its DDL, for example 'id bigint, name string'.",
        )
    try:
        return t.DataType.fromDDL(given)
    except PySparkException as error:
        raise SettingRefused(
            "DECODE_TYPE",
            f"{where}: {given!r} is not a type that Spark knows: {_first_line(error)}. Write it as "
            "in CREATE TABLE: 'id bigint not null, name string'.",
        ) from None


def _first_line(error: Exception) -> str:
    return next(filter(None, map(str.strip, str(error).splitlines())), "").rstrip(".")


def _atoms() -> dict[Any, pa.DataType]:
    import pyarrow as pa
    from pyspark.sql import types as t

    return {
        t.StringType: pa.string(),
        t.BinaryType: pa.binary(),
        t.BooleanType: pa.bool_(),
        t.ByteType: pa.int8(),
        t.ShortType: pa.int16(),
        t.IntegerType: pa.int32(),
        t.LongType: pa.int64(),
        t.FloatType: pa.float32(),
        t.DoubleType: pa.float64(),
        t.DateType: pa.date32(),
        t.TimestampType: pa.timestamp("us", "UTC"),
        t.TimestampNTZType: pa.timestamp("us"),
    }
