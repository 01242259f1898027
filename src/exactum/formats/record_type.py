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
            f"{where}: {given!r} is not a type that Spark knows: {_first_line(error)}. Write it as "
            "in CREATE TABLE: 'id bigint not null, name string'.",
        ) from None


def _first_line(error: Exception) -> str:
    return next(filter(None, map(str.strip, str(error).splitlines())), "").rstrip(".")


def json_type(kind: Any, *, signed_zeros: bool = False) -> Any:
    """What msgspec decodes JSON into, so that it fits the Arrow type ``kind``: dictionaries and
    lists, in which only fields that may be null may be missing.

    Decimals and floats are left as the numbers and texts that they are written as
    (``exact.json_numbers``). ``signed_zeros``: an integer may be written as -0.0.

    Raises:
        SettingRefused: a map has booleans as its keys, which JSON does not have.
    """
    import pyarrow as pa

    def of(one: Any) -> Any:
        if pa.types.is_struct(one):
            return _record({each.name: field(each) for each in one}, _required(one))
        if pa.types.is_list(one):
            return list[field(one.value_field)]  # type: ignore[misc]
        if pa.types.is_map(one):
            if pa.types.is_boolean(one.key_type):
                raise SettingRefused(
                    "DECODE_TYPE",
                    "Json: a map cannot have booleans as its keys, because those of JSON are "
                    "texts. Use string.",
                )
            key = str if pa.types.is_decimal(one.key_type) else _json_atom(one.key_type)
            return dict[key, field(one.item_field)]  # type: ignore[valid-type, misc]
        return (
            _json_atom(one) | float
            if signed_zeros and pa.types.is_integer(one)
            else _json_atom(one)
        )

    def field(one: Any) -> Any:
        return of(one.type) | None if one.nullable else of(one.type)

    return of(kind)


def _required(kind: Any) -> set[str]:
    return {one.name for one in kind if not one.nullable}


def _record(fields: dict[str, Any], required: set[str]) -> Any:
    """A ``TypedDict`` with these fields.

    msgspec compares a name that is not ASCII with the UTF-8 that CPython keeps in the name's own
    object, and finds none, so no field, where nobody has asked that object for it before, as after
    unpickling. To encode a name by msgspec leaves it there. It keeps the objects of
    ``__annotations__``, so a probe with these tells whether it finds them.

    Raises:
        SettingRefused: it does not: records would lose those fields.
    """
    import msgspec

    made = TypedDict("Record", {name: fields[name] for name in required})  # type: ignore[misc]
    others = {name: one for name, one in fields.items() if name not in required}
    record = types.new_class(
        "Record", (made,), {"total": False}, lambda new: new.update(__annotations__=others)
    )
    names = list(record.__annotations__)
    text = msgspec.json.encode(dict.fromkeys(names))
    probe = TypedDict("Probe", dict.fromkeys(names, Any), total=False)  # type: ignore[misc]
    missed = set(names) - msgspec.json.decode(text, type=probe).keys()
    if missed:
        raise SettingRefused(
            "DECODE_TYPE",
            f"Json: msgspec {msgspec.__version__} does not find the fields {', '.join(missed)} by "
            "their names, so their values would be lost. Install another version of msgspec.",
        )
    return record


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
