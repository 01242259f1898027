"""Cuts a stream of record batches into chunks of equal length: the same stream always into the same
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def chunks(
    batches: Iterable[Any], rows_per_chunk: int, first: int = 0
) -> Iterator[tuple[int, Any]]:
    """(number, record batch of ``rows_per_chunk`` rows; the last one may be shorter), from number
    ``first`` on.
    """
    number, held, pieces = 0, 0, []
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, rows_per_chunk - held)
            batch = batch.slice(piece.num_rows)  # noqa: PLW2901  (what is left of it)
            pieces.append(piece)
            held += piece.num_rows
            if held == rows_per_chunk:
                if number >= first:
                    yield number, joined(pieces)
                number, held, pieces = number + 1, 0, []
    if pieces and number >= first:
        yield number, joined(pieces)


def joined(pieces: list[Any]) -> Any:
    """One record batch of all rows of ``pieces``, which are at least one."""
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces[0]
    table = pa.Table.from_batches(pieces).combine_chunks()
    return table.to_batches()[0]
