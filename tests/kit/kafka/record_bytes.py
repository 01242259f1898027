"""How large a record is, by the page on Kafka's message format and ByteUtils.sizeOfVarint: said again,
not taken from exactum.
"""

from __future__ import annotations

from collections.abc import Iterable


def varint(number: int) -> int:
    zigzag, count = (number << 1) ^ (number >> 31), 1
    while zigzag & ~0x7F:
        zigzag, count = zigzag >> 7, count + 1
    return count


def batch_bytes(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[bytes, bytes | None]] = ()
) -> int:
    """Of a batch with this record alone."""
    given = list(headers)
    texts = [key, value, *(text for header in given for text in header)]
    lengths = sum(varint(-1 if t is None else len(t)) + len(t or b"") for t in texts)
    body = 3 + varint(len(given)) + lengths
    return 61 + varint(body) + body
