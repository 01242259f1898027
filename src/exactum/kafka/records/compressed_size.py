"""What a record comes to when it is compressed, where that decides whether its topic takes it.

A broker measures a batch as it gets it, so a record beyond the topic's limit may fit once it is
compressed. Who wants that sets ``message.max.bytes`` above the topic's own. librdkafka's
compressors are not at hand here; others of the same formats come within a few per cent, and what
would fit only just is refused.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

MARGIN = 1.1
MARGIN_BYTES = 4_096
LZ4_BLOCK_BYTES = 64 * 1024
"""librdkafka compresses each such block for itself (rdkafka_lz4.c, LZ4F_blockIndependent)."""
GZIP_DEFAULT, ZSTD_DEFAULT = -1, 3


def bytes_max(content: bytes, codec: str, level: int | None) -> int | None:
    """The most that a record with this content comes to; None where that cannot be told."""
    if codec == "gzip":
        found = len(zlib.compress(content, GZIP_DEFAULT if level is None else min(level, 9)))
    elif codec == "lz4" and pa.Codec.is_available("lz4_raw"):
        lz4 = pa.Codec("lz4_raw")
        blocks = range(0, len(content), LZ4_BLOCK_BYTES)
        found = sum(
            len(lz4.compress(content[of : of + LZ4_BLOCK_BYTES], asbytes=True)) for of in blocks
        )
    elif codec == "zstd" and pa.Codec.is_available("zstd"):
        zstd = pa.Codec("zstd", compression_level=ZSTD_DEFAULT if level is None else level)
        found = len(zstd.compress(content, asbytes=True))
    elif codec == "snappy" and pa.Codec.is_available("snappy"):
        found = len(pa.Codec("snappy").compress(content, asbytes=True))
    else:
        return None
    return int(found * MARGIN) + MARGIN_BYTES
