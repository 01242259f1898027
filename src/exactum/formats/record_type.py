"""The types of a decoded record: Spark's to Arrow's, and Arrow's to what msgspec checks values
against.

Arrow's types go to the tasks: they carry which fields may be null, and need no pyspark there.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from exactum.errors import SettingRefused

NATIVE = (bytes, datetime.datetime, datetime.date, decimal.Decimal)
"""Python types that Arrow takes as they are."""

FLOAT_END = 2.0**128 - 2.0**103
"""Half a step beyond the largest ``float``: the nearest one of what is less is finite. Other
systems write the largest as 3.4028235e38, which is a little more than it is.
"""


def arrow_type(kind: Any, where: str, *, nullable: bool = False) -> Any:
    """Arrow's type for one of Spark's; ``where`` names the record in errors.

    ``nullable`` makes every field nullable, whatever ``kind`` says: the type of a column in which
    bad rows are null.

    Raises:
        SettingRefused: a decoded record cannot have this type.
    """
    import pyarrow as pa
    from pyspark.sql import types as t

    def of(one: Any) -> Any:
        if isinstance(one, t.StructType):
            twice = sorted({name for name in one.names if one.names.count(name) > 1})
            if twice:
                raise SettingRefused(
                    f"{where}: a struct has two fields of the name {', '.join(twice)}, and nobody "
                    "can tell which one a record means. Rename or remove one."
                )
            return pa.struct(
                [pa.field(f.name, of(f.dataType), nullable or f.nullable) for f in one.fields]
            )
        if isinstance(one, t.ArrayType):
            return pa.list_(pa.field("element", of(one.elementType), nullable or one.containsNull))
        if isinstance(one, t.MapType):
            key = pa.field("key", of(one.keyType), False)
            return pa.map_(
                key, pa.field("value", of(one.valueType), nullable or one.valueContainsNull)
            )
        if isinstance(one, t.DecimalType):
            return pa.decimal128(one.precision, one.scale)
        found = _atoms().get(type(one))
        if found is None:
            raise SettingRefused(
                f"{where} cannot be decoded into {one.simpleString()}. Use string, binary, "
                "boolean, tinyint, smallint, int, bigint, float, double, decimal, date, "
                "timestamp, timestamp_ntz, and structs, arrays and maps."
            )
        return found

    return of(kind)


def as_nullable(kind: Any) -> Any:
    """Spark's type with every field nullable."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return t.StructType(
            [t.StructField(f.name, as_nullable(f.dataType), True, f.metadata) for f in kind.fields]
        )
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(as_nullable(kind.elementType), True)
    if isinstance(kind, t.MapType):
        return t.MapType(as_nullable(kind.keyType), as_nullable(kind.valueType), True)
    return kind


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
            f"{where} needs a type of Spark or its DDL, for example 'id bigint, name string'."
        )
    try:
        return t.DataType.fromDDL(given)
    except PySparkException as error:
        raise SettingRefused(
            f"{where}: {given!r} is not a type that Spark knows: {str(error).splitlines()[0]}"
        ) from None


def checked_type(kind: Any, *, as_texts: bool = False) -> Any:
    """What msgspec decodes JSON into, or converts values into, so that they fit the Arrow type
    ``kind``.

    A struct becomes a class with one attribute for each field; only fields that may be null may be
    missing. ``as_texts`` leaves decimals and times as they are written: their JSON, and keys as
    text.
    """
    import msgspec
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return _struct(kind, as_texts)
    if pa.types.is_list(kind):
        return list[_field(kind.value_field, as_texts)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        key = (
            str
            if as_texts and _is_text(kind.key_type)
            else checked_type(kind.key_type, as_texts=as_texts)
        )
        return dict[key, _field(kind.item_field, as_texts)]  # type: ignore[valid-type, misc]
    if as_texts and _is_text(kind):
        return msgspec.Raw
    for test, made in _CHECKED:
        if test(pa.types, kind):
            return made(kind)
    raise SettingRefused(f"Records cannot be decoded into the Arrow type {kind}.")


def atoms_of(kind: Any) -> Iterator[Any]:
    """The Arrow types inside of ``kind`` that have no types inside of them."""
    if not kind.num_fields:
        yield kind
    for number in range(kind.num_fields):
        yield from atoms_of(kind.field(number).type)


def _is_text(kind: Any) -> bool:
    """True for types that JSON has no form of its own for, and of which Python's value may show
    less than the text.
    """
    import pyarrow as pa

    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind))


def plain(values: Sequence[Any]) -> list[Any]:
    """Decoded values as dictionaries and lists, which Arrow takes."""
    import msgspec

    made: list[Any] = msgspec.to_builtins(values, builtin_types=NATIVE)
    return made


def _struct(kind: Any, as_texts: bool) -> Any:
    """Attributes are numbered, so that a field may have any name."""
    import msgspec

    fields: list[Any] = []
    for number, field in enumerate(kind):
        made = _field(field, as_texts)
        fields.append((f"f{number}", made, None) if field.nullable else (f"f{number}", made))
    names = {f"f{number}": field.name for number, field in enumerate(kind)}
    return msgspec.defstruct("Record", fields, rename=names, kw_only=True, gc=False)


def _field(field: Any, as_texts: bool) -> Any:
    import msgspec

    made = checked_type(field.type, as_texts=as_texts)
    return (made | None) if field.nullable and made is not msgspec.Raw else made


def _atoms() -> dict[Any, Any]:
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


def _ranged(base: type, low: float, high: float) -> Any:
    import msgspec

    return Annotated[base, msgspec.Meta(ge=low, le=high)]


def _between(base: type, low: float, high: float) -> Any:
    import msgspec

    return Annotated[base, msgspec.Meta(gt=low, lt=high)]


def _integer(kind: Any) -> Any:
    return _ranged(int, -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)


def _time(kind: Any) -> Any:
    import msgspec

    return Annotated[datetime.datetime, msgspec.Meta(tz=kind.tz is not None)]


_CHECKED: tuple[tuple[Callable[[Any, Any], bool], Callable[[Any], Any]], ...] = (
    (lambda types, kind: types.is_string(kind), lambda kind: str),
    (lambda types, kind: types.is_binary(kind), lambda kind: bytes),
    (lambda types, kind: types.is_boolean(kind), lambda kind: bool),
    (lambda types, kind: types.is_signed_integer(kind), _integer),
    (
        lambda types, kind: types.is_float32(kind),
        lambda kind: _between(float, -FLOAT_END, FLOAT_END),
    ),
    (lambda types, kind: types.is_float64(kind), lambda kind: float),
    (lambda types, kind: types.is_decimal(kind), lambda kind: decimal.Decimal),
    (lambda types, kind: types.is_date32(kind), lambda kind: datetime.date),
    (lambda types, kind: types.is_timestamp(kind), _time),
)
