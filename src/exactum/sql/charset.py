"""Character sets other than UTF-8: which characters one can hold, and in how many bytes. Checked on
whole Arrow arrays.

A server asked to write a character that the column's character set lacks writes another one (a
question mark, or one that looks alike), with or without a warning. So what a set can hold is known
before a row is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.sql.buffers import bytes_of

CODE_POINTS = 0x110000
_ASCII = 0x80


@dataclass(frozen=True)
class Charset:
    """A character set. Picklable.

    spans: (first, last, bytes): the code points that it can hold, in order, and the bytes of each
    of them.
    """

    name: str
    spans: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of_widths(name: str, widths: dict[int, int]) -> Charset:
        """From the bytes of each code point that it can hold."""
        spans: list[tuple[int, int, int]] = []
        for code, width in sorted(widths.items()):
            if spans and spans[-1][1] == code - 1 and spans[-1][2] == width:
                spans[-1] = (spans[-1][0], code, width)
            else:
                spans.append((code, code, width))
        return Charset(name, tuple(spans))

    def measured(self, values: Any) -> tuple[Any, Any]:
        """For each text of an Arrow string array: how many bytes it takes here, and whether all of
        it can be held.

        Null counts as empty. Text that is not UTF-8 cannot be held.
        """
        data, offsets = bytes_of(values)
        widths = _widths(self)
        raw = np.frombuffer(data, np.uint8)
        if bool((widths[:_ASCII] == 1).all()) and not bool((raw >= _ASCII).any()):
            return pa.array(np.diff(offsets).astype(np.int64)), pa.array(np.ones(len(values), bool))
        try:
            codes = np.frombuffer(data.decode().encode("utf-32-le", "surrogatepass"), np.uint32)
        except UnicodeDecodeError:
            return self._one_by_one(values)
        # How many characters begin before each byte: continuation bytes begin none.
        begun = np.concatenate(([0], np.cumsum((raw & 0xC0) != 0x80)))[offsets]
        each = widths[codes].astype(np.int64)
        total = np.concatenate(([0], np.cumsum(each)))
        missing = np.concatenate(([0], np.cumsum(each == 0)))
        return (
            pa.array(total[begun[1:]] - total[begun[:-1]]),
            pa.array(missing[begun[1:]] == missing[begun[:-1]]),
        )

    def _one_by_one(self, values: Any) -> tuple[Any, Any]:
        """Where some text is not UTF-8, so that the whole cannot be decoded."""
        widths = _widths(self)
        lengths, fits = [], []
        for raw in pc.fill_null(values.cast(pa.large_binary()), b"").to_pylist():
            try:
                codes = np.frombuffer(raw.decode().encode("utf-32-le"), np.uint32)
            except UnicodeDecodeError:
                lengths.append(len(raw))
                fits.append(False)
                continue
            each = widths[codes]
            lengths.append(int(each.sum(dtype=np.int64)))
            fits.append(bool((each > 0).all()))
        return pa.array(lengths, pa.int64()), pa.array(fits, pa.bool_())


@lru_cache(maxsize=16)
def _widths(charset: Charset) -> Any:
    """The bytes of every code point; 0: it cannot be held."""
    table = np.zeros(CODE_POINTS, np.uint8)
    for first, last, width in charset.spans:
        table[first : last + 1] = width
    return table
