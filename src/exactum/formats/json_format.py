"""``Json(schema)``: values that are JSON texts, each checked against the schema before Spark sees
it.

Spark's own ``from_json`` takes a number for text, ignores what follows the first value, and gives
null for what is missing; here each of these is a bad record.
"""

from __future__ import annotations

import datetime
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from exactum.errors import SettingRefused
from exactum.formats import exact, registry
from exactum.formats.exact import SHOWN_CHARS_MAX
from exactum.formats.format import (
    BadRecord,
    Bound,
    RecordDecoder,
    arrow_type,
    not_utf_8,
    require,
    spark_type,
)

_MAY_BE_FINER = re.compile(r":[0-9]{2}\.[0-9]{7}|\\u00[23]")
"""In each text of JSON with a time that is finer than a microsecond; few others have it."""
_FINER = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")


@dataclass(frozen=True)
class Json:
    """One JSON text (RFC 8259, UTF-8) in each record, decoded strictly into ``schema``.

    Args:
        schema: Spark's type or its DDL: ``"id bigint not null, name string, tags array<string>"``.
            Fields that are ``not null`` must be there; the others are null where they are missing.
            Fields of the text that the schema does not name are ignored. Numbers are not texts and
            texts are not numbers; an integer has no decimal point and fits its type; a decimal may
            be a number or a text; dates and times are texts in RFC 3339 (with an offset for
            ``timestamp``, without one for ``timestamp_ntz``); binary is base64.
        registry: URL of a Confluent schema registry, or a mapping of the settings of
            confluent-kafka's client (``url``, ``basic.auth.user.info``, ...). Then each record
            begins with the registry's magic byte and schema id; an id that the registry does not
            know makes the record bad.
    """

    schema: Any
    registry: str | Mapping[str, Any] | None = field(default=None, repr=False)

    def bind(self) -> Bound:
        """See ``Format.bind``."""
        require("msgspec", "", "Json")
        place = registry.place(self.registry, None, "Json")
        kind = spark_type(self.schema, "Json")
        checked = arrow_type(kind, "Json")
        _checked_type(checked)
        return Bound(kind, JsonCodec(checked, place), place is not None)


@dataclass(frozen=True)
class JsonCodec:
    """Opens decoders of JSON, plain or with a registry's header, in a task. Picklable."""

    checked: Any
    """The Arrow type that records must have, with what may be null."""
    place: registry.RegistryAddress | None

    def open(self, kind: Any) -> RecordDecoder:
        read = reader(self.checked)
        if self.place is None:
            return RecordDecoder(kind, read)
        schemas = registry.Writers(self.place)

        def one(data: bytes) -> Any:
            number, start = registry.schema_id(data)
            schemas.writer(number)
            return read(data[start:])

        return RecordDecoder(kind, one)


def reader(checked: Any) -> Callable[[bytes], Any]:
    """A function from a JSON text to a value of the Arrow type ``checked``; raises BadRecord."""
    import msgspec

    decode = msgspec.json.Decoder(_checked_type(checked), float_hook=exact.decimal_of).decode
    fit = exact.fitter(checked, exact.json_numbers, null=False)
    refuse_finer = exact.fitter(checked, _times)

    def one(data: bytes) -> Any:
        try:
            text = data.decode()  # msgspec passes over the bytes of what the schema does not name
            made = decode(text)
            if refuse_finer is not None and _MAY_BE_FINER.search(text):
                refuse_finer(json.loads(text, parse_float=str, parse_int=str))
        except UnicodeDecodeError as error:
            raise BadRecord(not_utf_8(error)) from None
        except msgspec.ValidationError as error:
            raise BadRecord(f"it does not fit the schema: {error}") from None
        except msgspec.DecodeError as error:
            raise BadRecord(f"it is no JSON: {error}") from None
        except RecursionError:
            raise BadRecord("it is no JSON that can be read: it is nested too deeply") from None
        return made if fit is None else fit(made)

    return one


def _checked_type(kind: Any) -> Any:
    """What msgspec decodes JSON into, so that it fits the Arrow type ``kind``: dictionaries and
    lists, in which only fields that may be null may be missing.

    Decimals and floats are left as the numbers and texts that they are written as
    (``exact.json_numbers``).

    Raises:
        SettingRefused: a map has booleans as its keys, which JSON does not have.
    """
    import pyarrow as pa

    def of(one: Any) -> Any:
        if pa.types.is_struct(one):
            required = {each.name for each in one if not each.nullable}
            return _record({each.name: inside(each) for each in one}, required)
        if pa.types.is_list(one):
            return list[inside(one.value_field)]  # type: ignore[misc]
        if pa.types.is_map(one):
            if pa.types.is_boolean(one.key_type):
                raise SettingRefused(
                    "DECODE_TYPE",
                    "Json: a map cannot have booleans as its keys, because those of JSON are "
                    "texts. Use string.",
                )
            key = str if pa.types.is_decimal(one.key_type) else _json_atom(one.key_type)
            return dict[key, inside(one.item_field)]  # type: ignore[valid-type, misc]
        return _json_atom(one)

    def inside(one: Any) -> Any:
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


def _times(kind: Any, place: str) -> exact.Step | None:
    """Refuses the texts of times that msgspec has rounded."""
    import pyarrow as pa

    def one(text: str) -> None:
        if _FINER.search(text):
            raise BadRecord(f"{place}: {text[:SHOWN_CHARS_MAX]!r} is finer than a microsecond")

    return one if pa.types.is_timestamp(kind) else None
