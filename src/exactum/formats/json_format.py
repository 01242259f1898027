"""``Json(schema)``: values that are JSON texts, each checked against the schema before Spark sees
it.

Spark's own ``from_json`` takes a number for text, ignores what follows the first value, and gives
null for what is missing; here each of these is a bad record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from exactum.formats import exact, registry
from exactum.formats.checked_type import checked_type
from exactum.formats.exact import SHOWN_CHARS_MAX
from exactum.formats.format import (
    BadRecord,
    Bound,
    Reader,
    arrow_type,
    not_utf_8,
    require,
    spark_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

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
        checked_type(checked, of_json=True)
        return Bound(kind, partial(_reader, checked, place), place is not None)


def _reader(checked: pa.DataType, place: registry.RegistryAddress | None) -> Reader:
    read = reader(checked)
    return read if place is None else registry.registered(place, lambda schema, _: read)


def reader(checked: pa.DataType) -> Reader:
    """A function from a JSON text to a value of the Arrow type ``checked``; raises BadRecord."""
    import msgspec

    shape = checked_type(checked, of_json=True)
    decode = msgspec.json.Decoder(shape, float_hook=exact.decimal_of).decode
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


def _times(kind: pa.DataType, place: str) -> exact.Step | None:
    """Refuses the texts of times that msgspec has rounded."""
    import pyarrow as pa

    def one(text: str) -> None:
        if _FINER.search(text):
            raise BadRecord(f"{place}: {text[:SHOWN_CHARS_MAX]!r} is finer than a microsecond")

    return one if pa.types.is_timestamp(kind) else None
