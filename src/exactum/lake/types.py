"""The types that a column of a table has exactly as Spark has them, in Spark's words and Arrow's.

A frame says its types as texts (``struct<a:int>``), a task's rows and a table as Arrow's. They are
compared as texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

_ATOMS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {kind: name for name, kind in _ATOMS.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WORD = re.compile(r"\w+(\(\d+,\d+\))?")
_FIELD = re.compile(r"[^:<>,`]+")
DIGITS_MAX = 38


def spark_type(kind: pa.DataType) -> str | None:
    """Of a column that is this in Arrow; None: no column of a table holds all of its values as they
    are, as of unsigned numbers, nanoseconds and decimals of more than 38 digits.
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):  # in any time zone it is the same instant
        return "timestamp" if kind.unit == "us" and kind.tz is not None else None
    if pa.types.is_decimal128(kind):
        return (
            f"decimal({kind.precision},{kind.scale})" if 0 <= kind.scale <= kind.precision else None
        )
    if pa.types.is_struct(kind):
        names, kinds = [f.name for f in kind], [spark_type(f.type) for f in kind]
        parts = [f"{name}:{one}" for name, one in zip(names, kinds, strict=True)]
        return None if None in kinds or not parts else f"struct<{','.join(parts)}>"
    if pa.types.is_map(kind):
        key, item = spark_type(kind.key_type), spark_type(kind.item_type)
        return None if None in (key, item) else f"map<{key},{item}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = spark_type(kind.value_type)
        return None if element is None else f"array<{element}>"
    return None


def ddl(schema: pa.Schema) -> str:
    """As Spark takes a schema, of columns that a table can have: ``a bigint, b struct<`x-y`: int>``
    with every name quoted.
    """
    return ", ".join(f"{_quoted(field.name)} {_in_ddl(field.type)}" for field in schema)


def _in_ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(f.name)}: {_in_ddl(f.type)}' for f in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_in_ddl(kind.key_type)}, {_in_ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{_in_ddl(kind.value_type)}>"
    text = str(spark_type(kind))
    # The word alone means what spark.sql.timestampType says.
    return "timestamp_ltz" if text == "timestamp" else text


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def arrow_type(text: str) -> pa.DataType:
    """The other way round, of a frame's column. All in it may be null.

    Raises:
        ValueError: a table has no such type.
    """
    kind, rest = _read(text)
    if rest:
        raise ValueError(text)
    return kind


def _read(text: str) -> tuple[pa.DataType, str]:
    """The type that the text begins with, and what comes after it."""
    word = _WORD.match(text)
    if word is None:
        raise ValueError(text)
    name, rest = word[0], text[word.end() :]
    if name == "array" and rest[:1] == "<":
        element, rest = _read(rest[1:])
        return pa.list_(element), _after(rest, ">")
    if name == "map" and rest[:1] == "<":
        key, rest = _read(rest[1:])
        item, rest = _read(_after(rest, ","))
        return pa.map_(key, item), _after(rest, ">")
    if name == "struct" and rest[:1] == "<":
        fields: list[pa.Field] = []
        while not fields or rest[:1] == ",":
            field = _FIELD.match(rest, 1)
            if field is None:
                raise ValueError(text)
            kind, rest = _read(_after(rest[field.end() :], ":"))
            fields.append(pa.field(field[0], kind))
        return pa.struct(fields), _after(rest, ">")
    number = _DECIMAL.fullmatch(name)
    if number is not None and int(number[2]) <= int(number[1]) <= DIGITS_MAX:
        return pa.decimal128(int(number[1]), int(number[2])), rest
    if name not in _ATOMS:
        raise ValueError(text)
    return _ATOMS[name], rest


def _after(text: str, mark: str) -> str:
    if not text.startswith(mark):
        raise ValueError(text)
    return text[1:]


def _within(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type. A map's key is one that is never null, whatever it says."""
    if pa.types.is_map(kind):
        return [kind.item_field, kind.key_field.with_nullable(True)]
    return [kind.field(n) for n in range(kind.num_fields)]


def demands_a_value(kind: pa.DataType) -> bool:
    """Whether something within the type may not be null, other than the keys of maps."""
    return any(not field.nullable or demands_a_value(field.type) for field in _within(kind))


def parts_of(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The type and all within it."""
    yield kind
    for field in _within(kind):
        yield from parts_of(field.type)
