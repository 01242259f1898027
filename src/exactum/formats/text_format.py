"""``String()``: keys and values that are text, as strict UTF-8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exactum.formats.format import Bound, RecordDecoder, text_of


@dataclass(frozen=True)
class String:
    """Text in UTF-8, as a column of type string. What is not valid UTF-8 is a bad record.

    Where all that is decoded is text, Spark does it without Python.
    """

    def bind(self) -> Bound:
        """See ``Format.bind``."""
        from pyspark.sql.types import StringType

        return Bound(StringType(), TextCodec())


@dataclass(frozen=True)
class TextCodec:
    """The codec, and, having no state, its own decoder."""

    def open(self, kind: Any) -> TextCodec:
        return self

    def decode(self, column: Any) -> tuple[Any, dict[int, str]]:
        import pyarrow as pa

        try:
            return column.cast(pa.string()), {}
        except pa.ArrowInvalid:  # one of them is not UTF-8: find out which
            return RecordDecoder(pa.string(), text_of).decode(column)
