"""The types of a decoded record: Spark's to Arrow's, and Arrow's to what msgspec checks values
against.

Arrow's types go to the tasks: they carry which fields may be null, and need no pyspark there.
"""

from __future__ import annotations

import datetime
import types
from typing import Annotated, Any, TypedDict

from exactum.errors import SettingRefused


def arrow_type(kind: Any, where: str) -> Any:
    """Arrow's type for one of Spark's; ``where`` names the record in errors.

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


def as_nullable(kind: Any) -> Any:
    """Spark's type with every field nullable: of a column in which bad rows are null."""
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
            "DECODE_TYPE",
            f"{where} needs a type of Spark or its DDL, for example 'id bigint, name string'.",
        )
    try:
        return t.DataType.fromDDL(given)
    except PySparkException as error:
        raise SettingRefused(
            "DECODE_TYPE",
            f"{where}: {given!r} is not a type that Spark knows: {str(error).splitlines()[0]}",
        ) from None


def json_type(kind: Any) -> Any:
    """What msgspec decodes JSON into, so that it fits the Arrow type ``kind``: dictionaries and
    lists, in which only fields that may be null may be missing.

    Decimals and floats are left as the numbers and texts that they are written as
    (``exact.json_numbers``).
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        required = {one.name: json_type(one.type) for one in kind if not one.nullable}
        others = {one.name: json_type(one.type) | None for one in kind if one.nullable}
        record = TypedDict("Record", required)  # type: ignore[misc]
        return types.new_class(
            "Record", (record,), {"total": False}, lambda made: made.update(__annotations__=others)
        )
    if pa.types.is_list(kind):
        return list[_json_field(kind.value_field)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        key = str if pa.types.is_decimal(kind.key_type) else json_type(kind.key_type)
        return dict[key, _json_field(kind.item_field)]  # type: ignore[valid-type, misc]
    return _json_atom(kind)


def _json_field(field: Any) -> Any:
    made = json_type(field.type)
    return made | None if field.nullable else made


def _json_atom(kind: Any) -> Any:
    import msgspec
    import pyarrow as pa

    if pa.types.is_decimal(kind) or pa.types.is_float32(kind):
        return Any
    if pa.types.is_integer(kind):
        end = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-end, le=end - 1)]
    if pa.types.is_timestamp(kind):
        return Annotated[datetime.datetime, msgspec.Meta(tz=kind.tz is not None)]
    return {
        pa.string(): str,
        pa.binary(): bytes,
        pa.bool_(): bool,
        pa.float64(): float,
        pa.date32(): datetime.date,
    }[kind]


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
