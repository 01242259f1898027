"""The characters that a column's character set can hold: known for Unicode's sets, asked of the
server for the others.

The server's own tables have the last word: its latin1 is nearly cp1252, and its sjis, cp932 and gbk
differ from those of other programs. A character can be held if it comes back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from exactum.sql.charset import Charset
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import sql

_LAST = 0x10FFFF
_UNICODE: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "ascii": ((0, 0x7F, 1),),
    "utf8": ((0, 0x7F, 1), (0x80, 0x7FF, 2), (0x800, 0xFFFF, 3)),
    "utf8mb3": ((0, 0x7F, 1), (0x80, 0x7FF, 2), (0x800, 0xFFFF, 3)),
    "ucs2": ((0, 0xFFFF, 2),),
    "utf16": ((0, 0xFFFF, 2), (0x10000, _LAST, 4)),
    "utf16le": ((0, 0xFFFF, 2), (0x10000, _LAST, 4)),
    "utf32": ((0, _LAST, 4),),
}
_SURROGATES = range(0xD800, 0xE000)
_PLANE = 0x10000
_BETWEEN = "\n"
"""Stands between two characters in a question; no set has its byte inside another character."""
_EVERYTHING = "utf8mb4"


def charset(session: MySQLSession, name: str) -> Charset | None:
    """The character set of that name; None for UTF-8, which holds everything.

    Raises:
        SqlFailure: the server could not be asked.
    """
    lowered = name.lower()
    if lowered == _EVERYTHING:
        return None
    if lowered in _UNICODE:
        return Charset(lowered, _UNICODE[lowered])
    widths = {ord(_BETWEEN): 1, **_asked(session, lowered, _plane(0))}
    # Beyond the first plane sets hold either everything (gb18030) or nothing.
    sample = _asked(session, lowered, "\U00010000\U0001f600\U0010ffff")
    spans = Charset.of_widths(lowered, widths).spans
    if len(sample) == 3:
        spans = (*spans, (_PLANE, _LAST, max(sample.values())))
    return Charset(lowered, spans)


def _asked(session: MySQLSession, name: str, characters: str) -> dict[int, int]:
    """The bytes of each of the characters that come back as they were."""
    text = _BETWEEN.join(characters)
    encoded, back = session.query(sql("try_characters", charset=name), (text, characters))[0]
    each = bytes(encoded).split(_BETWEEN.encode())
    session.rollback()
    return {
        ord(c): len(b)
        for c, b, found in zip(characters, each, str(back), strict=True)
        if c == found
    }


@cache
def _plane(number: int) -> str:
    first = number * _PLANE
    return "".join(
        chr(code)
        for code in range(first, first + _PLANE)
        if code not in _SURROGATES and chr(code) != _BETWEEN
    )
