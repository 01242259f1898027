"""The type that msgspec checks values by, for a type of Arrow: which fields must be there, what
each is, and in which range.
"""

from __future__ import annotations

import datetime
import types
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from exactum.errors import SettingRefused

if TYPE_CHECKING:
    import pyarrow as pa


def checked_type(kind: pa.DataType, *, of_json: bool) -> Any:
    """What msgspec makes of JSON, or of a value of Python, so that it fits the Arrow type ``kind``:
    dictionaries and lists, in which only fields that may be null may be missing.

    Decimals and floats are left as they are, for ``exact``; a double of JSON is made here.

    Raises:
        SettingRefused: a map has booleans as its keys, which JSON does not have.
    """
    import pyarrow as pa

    def of(one: pa.DataType) -> Any:
        if pa.types.is_struct(one):
            required = {each.name for each in one if not each.nullable}
            return _record({each.name: inside(each) for each in one}, required)
        if pa.types.is_list(one):
            return list[inside(one.value_field)]  # type: ignore[misc]
        if pa.types.is_map(one):
            if of_json and pa.types.is_boolean(one.key_type):
                raise SettingRefused(
                    "DECODE_TYPE",
                    "Json: a map cannot have booleans as its keys, because those of JSON are "
                    "texts. Use string.",
                )
            key = (
                str
                if of_json and pa.types.is_decimal(one.key_type)
                else _atom(one.key_type, of_json)
            )
            return dict[key, inside(one.item_field)]  # type: ignore[valid-type, misc]
        return _atom(one, of_json)

    def inside(one: pa.Field) -> Any:
        return of(one.type) | None if one.nullable else of(one.type)

    return of(kind)


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


def _atom(kind: pa.DataType, of_json: bool) -> Any:
    import msgspec
    import pyarrow as pa

    if pa.types.is_decimal(kind) or pa.types.is_float32(kind):
        return Any
    if pa.types.is_float64(kind):
        return float if of_json else Any
    if pa.types.is_integer(kind):
        end = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-end, le=end - 1)]
    if pa.types.is_timestamp(kind):
        return Annotated[datetime.datetime, msgspec.Meta(tz=kind.tz is not None)]
    return {
        pa.string(): str,
        pa.binary(): bytes,
        pa.bool_(): bool,
        pa.date32(): datetime.date,
    }[kind]
