"""The makers of odd frames keep their own promises: else the abuse suites would test nothing."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given

from tests.kit.abuse.frames import ALL, BAD_TEXT, Frame, bulk, edges, frames
from tests.kit.abuse.kinds import Kind, from_arrow, kind_of, same


@given(frames())
def test_what_a_frame_holds_is_what_its_batch_holds(frame: Frame) -> None:
    """A batch has the frame's names, types, rows and values to the bit, however odd they are."""
    batch = frame.batch("America/New_York")
    assert batch.num_rows == frame.count
    assert tuple(batch.schema.names) == frame.names
    for number, kind in enumerate(frame.kinds):
        assert batch.column(number).type == kind.arrow("America/New_York")
        batch.column(number).validate()
        assert all(
            map(
                same,
                [kind] * frame.count,
                from_arrow(kind, batch.column(number)),
                frame.values[number],
            )
        )


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_every_type_is_named_as_spark_names_it_and_read_back(kind: Kind) -> None:
    """A type's simple string is read back as the type, and a batch of a seed's rows, cut
    anywhere, has their values.
    """
    assert kind.simple == kind_of(kind.simple).simple
    frame = bulk(["c"], [kind], 300, random.Random(5), edge_share=0.5)
    again = bulk(["c"], [kind], 300, random.Random(5), edge_share=0.5)
    read = from_arrow(kind, pa.Table.from_batches(frame.batches(77)).column(0))
    cut = from_arrow(kind, frame.batch().slice(100, 50).column(0))
    assert all(map(same, [kind] * 300, read, again.values[0]))
    assert all(map(same, [kind] * 50, cut, again.values[0][100:150]))


def test_the_odd_ones_are_among_them() -> None:
    """A few thousand rows of a seed hold every edge of a text, bad UTF-8 too, and leave it out
    when told.
    """
    text = kind_of("string")
    made = set(bulk(["c"], [text], 5_000, random.Random(1)).values[0])
    assert made >= set(edges(text)) | {None}
    assert not made.isdisjoint(BAD_TEXT)
    good = bulk(["c"], [text], 5_000, random.Random(1), bad_text=False).values[0]
    assert set(BAD_TEXT).isdisjoint(good)
