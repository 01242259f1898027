"""Whether text is UTF-8: Spark casts bytes to a string without a look at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from exactum.values.nested import data_of, is_text, rows_where


def not_utf8(values: Any) -> Any:
    """Which rows hold text, at any depth, that is not UTF-8: a NumPy mask, or None for none."""
    return rows_where(values, _not_utf8)


def repaired(values: Any) -> Any:
    """A text array in which each byte that is no UTF-8 is shown as ``\\xff``; itself where there is
    none.
    """
    broken = _not_utf8(values)
    if broken is None:
        return values
    texts = [None if b is None else b.decode("utf-8", "backslashreplace") for b in _bytes(values)]
    return pa.array(texts, values.type)


def _not_utf8(values: Any) -> Any:
    if not is_text(values.type) or _all_utf8(values):
        return None
    broken = np.fromiter(
        (b is not None and not _is_utf8(b) for b in _bytes(values)), bool, len(values)
    )
    return broken if broken.any() else None


def _all_utf8(values: Any) -> bool:
    """False where some value may be bad. A look at all bytes at once settles plain ASCII in a
    fraction of the time.
    """
    data = data_of(values)
    if not len(data) or data.max() < 0x80:
        return True
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bytes(values: Any) -> list[bytes | None]:
    found: list[bytes | None] = values.cast(pa.large_binary()).to_pylist()
    return found


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
