"""Parsed Avro schemas, expanded by fastavro: what of one can be read without end, or as another
value than it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
PROMOTED.update({"bytes": ("string",), "string": ("bytes",)})
DECIMAL_DIGITS = 100
"""Digits that a decimal may have while fastavro makes it: it rounds beyond. More than any column
can hold, so that what is rounded is refused."""
NO_MEMBER = {"type": "fixed", "name": "exactum.NoMember", "size": 2**62}
NEGATIVE_MEMBERS = 8_192
"""Stands behind the members of a union, as often as a number of two bytes can be negative: no
record has its bytes.
"""
SCALE_MAX = 38
"""Arrow rescales a decimal exactly by no more digits than this."""


def contains_itself(schema: Any) -> bool:
    """True for a schema whose values may be nested without end: fastavro's recursion then ends the
    process.

    Whatever does not contain itself was expanded when it was parsed, so that no names are left.
    """
    if isinstance(schema, str):
        return schema not in PRIMITIVES
    return any(contains_itself(one) for one in _inside(schema))


def endless(schema: Any) -> bool:
    """True where some array's values take no bytes: a record of ten bytes may then say that it has
    2^62 of them.
    """
    if isinstance(schema, dict) and "items" in schema and _without_bytes(schema["items"]):
        return True
    return not isinstance(schema, str) and any(endless(one) for one in _inside(schema))


def _without_bytes(schema: Any) -> bool:
    if isinstance(schema, dict) and schema["type"] == "record":
        return all(_without_bytes(one["type"]) for one in schema["fields"])
    if isinstance(schema, dict) and schema["type"] == "fixed":
        return not schema["size"]
    return schema == "null" or (isinstance(schema, dict) and schema["type"] == "null")


def _inside(schema: Any) -> list[Any]:
    if isinstance(schema, list):
        return schema
    inner = [one["type"] for one in schema.get("fields", ())]
    inner += [schema[name] for name in ("items", "values") if name in schema]
    if not inner and schema["type"] not in ("record", "enum", "fixed"):
        inner.append(schema["type"])
    return inner


def strict(schema: Any) -> Any:
    """A writer's schema with which fastavro refuses what it would else take; for reading only.

    A decimal may have more digits than the schema says, where fastavro would round them: the column
    refuses it. A negative number of a symbol or of a union's member would be counted from the end:
    it finds none.
    """
    if isinstance(schema, list):
        return [*(strict(one) for one in schema), *[NO_MEMBER] * NEGATIVE_MEMBERS]
    if isinstance(schema, str):
        return schema
    made = dict(schema)
    if made.get("logicalType") == "decimal":
        made["precision"] = DECIMAL_DIGITS
    if made["type"] == "enum":
        made["symbols"] = dict(enumerate(made["symbols"]))
    if "fields" in made:
        made["fields"] = [{**one, "type": strict(one["type"])} for one in made["fields"]]
    for name in ("items", "values"):
        if name in made:
            made[name] = strict(made[name])
    return made


def differences(writer: Any, reader: Any, place: str = "value") -> Iterator[str]:
    """How a value that Avro's rules let pass would become another one.

    fastavro converts by the writer's logical types alone, and Arrow takes a number for a time and a
    decimal for a number; so what resolves to each other must be of one logical type. Fields are
    matched as fastavro does it: by name or, else, by an alias of the reader's.
    """
    if isinstance(writer, list) or isinstance(reader, list):
        for one in writer if isinstance(writer, list) else [writer]:
            for other in reader if isinstance(reader, list) else [reader]:
                yield from differences(one, other, place)
        return
    written, read = _kind(writer), _kind(reader)
    if written == read == "record":
        yield from _of_fields(writer, reader, place)
    elif written == read and written in ("array", "map"):
        name = "items" if written == "array" else "values"
        yield from differences(writer[name], reader[name], f"{place}[]")
    elif written == read or read in PROMOTED.get(written, ()):
        yield from _of_logical(writer, reader, place)


def _of_fields(writer: Any, reader: Any, place: str) -> Iterator[str]:
    names = {one["name"]: one for one in reader["fields"]}
    aliases = {alias: one for one in reader["fields"] for alias in one.get("aliases", ())}
    filled: set[str] = set()
    for one in writer["fields"]:
        found = names.get(one["name"]) or aliases.get(one["name"])
        if found is not None:
            if found["name"] in filled:
                yield f"has two fields for {place}.{found['name']}, by its name and an alias"
            filled.add(found["name"])
            yield from differences(one["type"], found["type"], f"{place}.{found['name']}")


def _of_logical(writer: Any, reader: Any, place: str) -> Iterator[str]:
    written, read = _logical(writer), _logical(reader)
    if _family(written) != _family(read):
        yield f"has {written or 'no'} logical type for {place}, not {read or 'none'}"
    elif written == "decimal" and writer.get("scale", 0) > SCALE_MAX:
        yield (
            f"has a decimal of scale {writer['scale']} for {place}: more than {SCALE_MAX} cannot "
            "be read exactly"
        )


def _kind(schema: Any) -> str:
    return str(schema if isinstance(schema, str) else schema["type"])


def _logical(schema: Any) -> str:
    return "" if isinstance(schema, str) else str(schema.get("logicalType", ""))


def _family(logical: str) -> str:
    """Logical types that fastavro makes the same Python values of."""
    return logical.removesuffix("-millis").removesuffix("-micros")
