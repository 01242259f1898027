"""``String()``: keys and values that are text, as strict UTF-8."""

from __future__ import annotations

from dataclasses import dataclass

from exactum.formats.format import Bound, Reader, text_of


@dataclass(frozen=True)
class String:
    """Text in UTF-8, as a column of type string. What is not valid UTF-8 is a bad record.

    Where all that is decoded is text, Spark does it without Python.
    """

    def bind(self) -> Bound:
        """See ``Format.bind``."""
        from pyspark.sql.types import StringType

        return Bound(StringType(), _reader)


def _reader() -> Reader:
    return text_of
