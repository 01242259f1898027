"""A dead letter of any row whatever: made without an error, read by any parser of JSON, and
nothing of it is lost.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings

from exactum.protocol.sink import DEAD_LETTER_COLUMNS, Rejection
from exactum.spark.write.dead_letter import dead_letters
from tests.kit.abuse.frames import ALL, Frame, bulk, frames, seed_of_run
from tests.kit.abuse.kinds import Kind, Raw, from_arrow, has_bad_text, parts, same
from tests.kit.abuse.texts import STRICT, of_json

COLUMNS = tuple(name for name, _ in DEAD_LETTER_COLUMNS)


def has_bad_key(kind: Kind, value: Raw) -> bool:
    """Whether the key of a map, at any depth, is no UTF-8: it is shown, as far as JSON has keys."""
    if value is None or not kind.of:
        return False
    if kind.name == "map" and any(has_bad_text(kind.of[0], key) for key, _ in value):
        return True
    return any(has_bad_key(*part) for part in parts(kind, value))


def check(frame: Frame) -> None:
    batch = frame.batch("America/New_York")
    rejection = Rejection(batch, tuple(f"reason {n}" for n in range(frame.count)))
    dead_letters(rejection, "sink", ("key", "value", "headers")).validate(full=True)
    letters = dead_letters(rejection, "sink", COLUMNS)
    letters.validate(full=True)
    assert letters.num_rows == frame.count
    for number, text in enumerate(letters.column(COLUMNS.index("row_json")).to_pylist()):
        found = json.loads(text, **STRICT)
        assert found.keys() <= set(frame.names)
        for name, kind, value in zip(frame.names, frame.kinds, frame.row(number), strict=True):
            if not has_bad_key(kind, value):
                told = of_json(kind, found.get(name))
                assert same(kind, told, value), (
                    f"column {name!r} ({kind}): {told!r} instead of {value!r}"
                )
    for name in ("key", "value"):
        if name in frame.names and frame.kinds[frame.names.index(name)].name in (
            "string",
            "binary",
        ):
            kept = from_arrow(Kind("binary"), letters.column(COLUMNS.index(name)))
            assert kept == frame.values[frame.names.index(name)]


@settings(max_examples=60)
@given(frames(ALL, duplicates=False, columns_min=1))
def test_any_row_makes_a_dead_letter(frame: Frame) -> None:
    """Every type, every odd value, every name: the row's JSON has it all, bytes and what is no
    number included.
    """
    check(frame)


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_every_type_is_in_the_row(kind: Kind) -> None:
    """Two hundred values of each type, half of them odd, and a key and a value of Kafka's beside
    them.
    """
    names, kinds = ["it", "key", "value"], [kind, Kind("binary"), Kind("string")]
    check(bulk(names, kinds, 200, random.Random(seed_of_run()), edge_share=0.5))
