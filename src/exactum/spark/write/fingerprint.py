"""How many rows a micro-batch has, and a hash of them in any order: whether it was computed once
more with the same result.

Each task adds up the hashes of the rows that it writes; a row that is there twice counts twice.

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_BITS = 64


@dataclass(frozen=True)
class Fingerprint:
    """Of some rows: how many, and the sum of their hashes, modulo 2 to the 64th."""

    rows: int = 0
    sum_of_hashes: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        total = (self.sum_of_hashes + other.sum_of_hashes) % 2**_BITS
        return Fingerprint(self.rows + other.rows, total)

    @staticmethod
    def of(rows: Any) -> Fingerprint:
        """Of the rows of an Arrow record batch."""
        from exactum.values.row_hash import row_hashes

        return Fingerprint(rows.num_rows, int(row_hashes(rows).sum()))
