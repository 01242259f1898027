"""Pieces of record batches joined to one, whatever their length."""

from __future__ import annotations

from typing import Any

SMALL_BYTES_MAX = 2**31 - 1
"""What an Arrow array of texts or bytes holds, unless it is of a large type."""


def joined(pieces: list[Any]) -> Any:
    """One record batch of all rows of ``pieces``, which are at least one.

    Texts and bytes of more than 2 GiB together are of Arrow's large types: others hold no more, and
    Arrow would give several batches.
    """
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces[0]
    table = pa.Table.from_batches(pieces)
    if table.nbytes > SMALL_BYTES_MAX:
        table = table.cast(
            pa.schema(
                [one.with_type(_large(one.type)) for one in table.schema], table.schema.metadata
            )
        )
    (whole,) = table.combine_chunks().to_batches()
    return whole


def _large(kind: Any) -> Any:
    """The Arrow type with texts and bytes without a limit to their length, at any depth."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_large(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_large(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_large(key.type)), item.with_type(_large(item.type)))
    return kind
