"""Values that a column cannot hold exactly: decimals too long, times of nanoseconds, texts that are
no numbers.

Arrow rescales a decimal by at most 38 digits: beyond that it answers zero or ends the process, so
it gets none whose digits and exponent were not looked at here.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from typing import Any

from exactum.formats import record_type
from exactum.formats.format import BadRecord

SHOWN_CHARS_MAX = 60
"""How much of a value a reason shows."""

_SUSPICIOUS_DECIMAL = r'"[0-9_.+\-eE\s\x80-\xff]*([_\s\x80-\xff][0-9_.+\-eE\s\x80-\xff]*"|\\)'
_SUSPICIOUS_TIME = r":[0-9]{2}\.[0-9]{7}|\\u00[23]"
"""Where a text may be more than its decoded value shows. What they find is looked at again; good
records rarely are.
"""

_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NANOSECONDS = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")


def fitter(kind: Any) -> Callable[[Any, str], Any] | None:
    """A function that gives every decimal in a value the scale of its column; None where ``kind``
    has no decimals.

    It takes a value as Arrow takes it and its place, changes dictionaries and lists in place, and
    raises BadRecord for a decimal that its column cannot hold.
    """
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_struct(kind):
        fields = [(one.name, made) for one in kind if (made := fitter(one.type)) is not None]
        return _of_fields(fields) if fields else None
    if pa.types.is_list(kind):
        inner = fitter(kind.value_type)
        return None if inner is None else _of_items(inner)
    if pa.types.is_map(kind):
        key, value = fitter(kind.key_type), fitter(kind.item_type)
        return None if key is None and value is None else _of_entries(key, value)
    return None


def _decimal(kind: Any) -> Callable[[Any, str], Any]:
    traps = [decimal.Inexact, decimal.InvalidOperation]
    # the wide exponents are those of the texts that a Decimal is made of
    context = decimal.Context(
        prec=kind.precision, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=traps
    )
    quantum, quantize = decimal.Decimal((0, (1,), -kind.scale)), context.quantize
    number = decimal.Decimal

    def fit(value: Any, place: str) -> Any:
        if not isinstance(value, number):
            return value
        try:
            return quantize(value, quantum)
        except (decimal.Inexact, decimal.InvalidOperation):
            shown = str(value)[:SHOWN_CHARS_MAX]
            raise BadRecord(
                f"{place}: {shown} does not fit decimal({kind.precision},{kind.scale})"
            ) from None

    return fit


def _of_fields(
    fields: Sequence[tuple[str, Callable[[Any, str], Any]]],
) -> Callable[[Any, str], Any]:
    def fit(value: Any, place: str) -> Any:
        if isinstance(value, dict):
            for name, inner in fields:
                found = value.get(name)
                if found is not None:
                    value[name] = inner(found, name)
        return value

    return fit


def _of_items(inner: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def fit(value: Any, place: str) -> Any:
        return [inner(one, place) for one in value] if isinstance(value, (list, tuple)) else value

    return fit


def _of_entries(
    of_key: Callable[[Any, str], Any] | None, of_value: Callable[[Any, str], Any] | None
) -> Callable[[Any, str], Any]:
    def fit(value: Any, place: str) -> Any:
        if value is None:
            return None
        entries = value.items() if isinstance(value, dict) else value
        return [
            (
                key if of_key is None else of_key(key, place),
                one if of_value is None else of_value(one, place),
            )
            for key, one in entries
        ]

    return fit


class JsonTexts:
    """Looks at the text of JSON records whose decimals and times may be more than what they are
    decoded into.
    """

    def __init__(self, checked: Any) -> None:
        """``checked`` is the Arrow type that records must have."""
        import msgspec
        import pyarrow as pa

        atoms = set(record_type.atoms_of(checked))
        patterns = [_SUSPICIOUS_DECIMAL] if any(pa.types.is_decimal(one) for one in atoms) else []
        patterns += [_SUSPICIOUS_TIME] if any(pa.types.is_timestamp(one) for one in atoms) else []
        self._pattern = "|".join(patterns)
        self._checked = checked
        self._decode = msgspec.json.Decoder(record_type.checked_type(checked, as_texts=True)).decode

    def suspicious(self, column: Any) -> list[int]:
        """The rows whose text has to be looked at, of an Arrow array of binary."""
        import pyarrow.compute as pc

        if (
            not self._pattern
            or not pc.match_substring_regex(_joined(column), self._pattern)[0].as_py()
        ):
            return []
        found: list[int] = pc.indices_nonzero(
            pc.match_substring_regex(column, self._pattern)
        ).to_pylist()
        return found

    def check(self, data: Any) -> None:
        """
        Raises:
            BadRecord: a decimal is no plain number, or a time has nanoseconds.
        """
        self._look(self._checked, self._decode(data), "value")

    def _look(self, kind: Any, value: Any, place: str) -> None:
        import pyarrow as pa

        if value is None:
            return
        if pa.types.is_struct(kind):
            for number, field in enumerate(kind):
                self._look(field.type, getattr(value, f"f{number}"), field.name)
        elif pa.types.is_list(kind):
            for one in value:
                self._look(kind.value_type, one, place)
        elif pa.types.is_map(kind):
            for key, one in value.items():
                self._look(kind.key_type, key, place)
                self._look(kind.item_type, one, place)
        elif pa.types.is_decimal(kind):
            text = _text_of(value)
            if text is not None and not _DECIMAL.fullmatch(text):
                raise BadRecord(f"{place}: {text[:SHOWN_CHARS_MAX]!r} is not a decimal number")
        elif pa.types.is_timestamp(kind):
            text = _text_of(value)
            if text is not None and _NANOSECONDS.search(text):
                raise BadRecord(f"{place}: {text[:SHOWN_CHARS_MAX]!r} is finer than a microsecond")


def _joined(column: Any) -> Any:
    """All bytes of an Arrow array of binary as an array of one: one search costs half of one for
    each record.
    """
    import numpy as np
    import pyarrow as pa

    large = column.type == pa.large_binary()
    _, ends, data = column.buffers()
    if data is None or not len(column):
        return pa.array([b""])
    places = np.frombuffer(ends, np.int64 if large else np.int32)[column.offset :][
        : len(column) + 1
    ]
    first, last = int(places[0]), int(places[-1])
    whole = pa.py_buffer(np.array([0, last - first], np.int64))
    return pa.Array.from_buffers(
        pa.large_binary(), 1, [None, whole, data.slice(first, last - first)]
    )


def _text_of(value: Any) -> str | None:
    """The text of a JSON string, given as its JSON or, as a key, as itself; None for a number and
    for null.
    """
    import msgspec

    if isinstance(value, str):
        return value
    raw = bytes(value)
    return str(msgspec.json.decode(raw)) if raw.startswith(b'"') else None
