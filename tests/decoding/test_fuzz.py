"""Every decoder against bytes that nobody meant to write: spoiled real records, and texts built to
be at the edges, alone and in a schema registry's frame.

What is checked comes from another reader of the same bytes (``tests.kit.decoding.oracles``), never
from the code under test. Hypothesis draws what is done to the records, and shrinks what it finds. A
decoder that ends its process or does not come back is found by the process around it: the fuzz runs
in one of its own, which prints its seed first.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from exactum import Avro, Function, Json, Protobuf, String
from exactum.formats import registry as registry_client
from exactum.formats.format import arrow_type, decoded
from tests.kit.decoding import records as made
from tests.kit.decoding.oracles import (
    NotWritten,
    is_avro_of,
    is_json_record_of,
    is_proto_of,
    same_number,
    varint_at,
)
from tests.kit.decoding.records import narrow_and_wide, narrow_or_wide
from tests.kit.decoding.registry import Registry
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

RECORDS = 400
RECORDS_DEEP = 30_000
"""Of each format."""
BATCH_MAX, BATCH_MEAN = 30, 8
GOOD_SHARE = 200
"""One record of so many, at the least, is good: else the fuzz sees nothing."""
TIMEOUT_DEEP_S = 1_800
BATCH_S_MAX = 20.0
"""Of a processor. A batch of small records takes milliseconds; this much is a hang."""
PREFIX = 5


@dataclass(frozen=True)
class Case:
    """A format, what makes its records, and another reader that says whether a value is a
    record's; for bytes that are no record it may raise instead.
    """

    given: Any
    make: Callable[[random.Random], bytes]
    is_right: Callable[[bytes, Any], bool]


def plain() -> dict[str, Case]:
    """Records without a registry."""
    texts = ("", "Zoë", "\U0001f600" * 9)
    return {
        "Json": Case(
            Json(made.KIND),
            made.json_record,
            lambda data, value: is_json_record_of(made.KIND, data, value),
        ),
        "Avro": Case(
            Avro(made.AVRO),
            lambda dice: made.avro_bytes(made.AVRO, dice),
            lambda data, value: is_avro_of(data, value, made.AVRO, made.AVRO, {}),
        ),
        "Protobuf": Case(Protobuf(narrow_and_wide()[0]), made.proto_record, is_proto_of),
        "String": Case(
            String(),
            lambda dice: dice.choice(texts).encode(),
            lambda data, value: data.decode() == value,
        ),
        "Function": Case(
            Function(lambda data: Decimal(data.decode()), t.DecimalType(10, 2)),
            lambda dice: made.numbers(dice).encode(),
            lambda data, value: same_number(data.decode().strip().replace("_", ""), value),
        ),
    }


def framed(registry: Registry) -> dict[str, Case]:
    """Records in a registry's frame, of several writers."""
    writers = {registry.register("avro", writer): writer for writer in made.WRITERS}
    json_id = registry.register("json", {"type": "object"}, kind="JSON")
    proto_id = registry.register("proto", narrow_or_wide(wide=True))

    def frame(number: int) -> bytes:
        return b"\0" + number.to_bytes(4, "big")

    def avro(dice: random.Random) -> bytes:
        number = dice.choice(list(writers))
        return frame(number) + made.avro_bytes(writers[number], dice)

    def is_avro(data: bytes, value: Any) -> bool:
        writer = writers[id_of(data)]
        return is_avro_of(data[PREFIX:], value, writer, made.READER, made.DEFAULTS)

    def proto(dice: random.Random) -> bytes:
        return frame(proto_id) + b"\x02\x02" + made.proto_record(dice)

    def is_proto(data: bytes, value: Any) -> bool:
        """The message is the second of its file: one index, which is 1, in zigzag."""
        count, place = varint_at(data, PREFIX)
        index, place = varint_at(data, place)
        known = id_of(data) == proto_id and (count, index) == (2, 2)
        return known and is_proto_of(data[place:], value)

    def is_json(data: bytes, value: Any) -> bool:
        return id_of(data) == json_id and is_json_record_of(made.KIND, data[PREFIX:], value)

    return {
        "Avro in a registry": Case(Avro(made.READER, registry=registry.url), avro, is_avro),
        "Protobuf in a registry": Case(
            Protobuf(narrow_and_wide()[0], registry=registry.url), proto, is_proto
        ),
        "Json in a registry": Case(
            Json(made.KIND, registry=registry.url),
            lambda dice: frame(json_id) + made.json_record(dice),
            is_json,
        ),
    }


def id_of(data: bytes) -> int:
    assert data[0] == 0, "another magic byte"
    return int.from_bytes(data[1:PREFIX], "big")


@contextmanager
def cases() -> Iterator[dict[str, Case]]:
    registry_client.TIMEOUT_S = 0.0  # of this process, for unknown ids
    registry = Registry()
    try:
        yield {**plain(), **framed(registry)}
    finally:
        registry.close()


def fuzz(seed: int, records: int) -> None:
    """Decodes about ``records`` of each format; ends at the first wrong value, made small."""
    sys.setrecursionlimit(20_000)
    with cases() as all_cases:
        for name, case in all_cases.items():
            fuzz_one(name, case, seed, records)


def fuzz_one(name: str, case: Case, seed: int, records: int) -> None:
    bound = case.given.bind()
    kind, reader = arrow_type(bound.column, name), bound.reader()
    seen = good = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=records // BATCH_MEAN,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.lists(made.SPOILED, min_size=1, max_size=BATCH_MAX))
    def decode(drawn: list[Any]) -> None:
        nonlocal seen, good
        batch = [made.spoiled(case.make, one) for one in drawn]
        Path("batch").write_text(f"{name} {batch!r}")
        began_s = time.process_time()
        column, reasons = decoded(pa.array([*batch, None], pa.binary()), kind, reader)
        assert time.process_time() - began_s < BATCH_S_MAX, f"{name}: a batch took too long"
        column.validate(full=True)
        for row, data in enumerate(batch):
            assert (row in reasons) != column[row].is_valid, (
                f"{name}: {data!r} has no value and no reason, or both"
            )
            if row not in reasons:
                value = python_value(column[row])
                assert value is None or is_right(case, data, value), (
                    f"{name}: {data!r} became {value!r}"
                )
        seen, good = seen + len(batch), good + len(batch) - len(reasons)

    decode()
    assert good > seen // GOOD_SHARE, f"{name}: only {good} of {seen} records are good"
    print(f"{name}: {good} of {seen} are good")


def is_right(case: Case, data: bytes, value: Any) -> bool:
    try:
        return case.is_right(data, value)
    except NotWritten:
        return True
    except (AssertionError, ValueError, LookupError, ArithmeticError):
        return False  # the other reader finds no record there


def python_value(one: Any) -> Any:
    """None for a time that Python's calendar does not have, with its offset taken off:
    0001-01-01T00:00:00+01:00.
    """
    try:
        return one.as_py()
    except OverflowError:
        return None


@pytest.mark.parametrize(
    ("records", "timeout_s"),
    [
        pytest.param(RECORDS, WAIT_MAX_S, id="some"),
        pytest.param(
            *(RECORDS_DEEP, TIMEOUT_DEEP_S),
            marks=[pytest.mark.deep, pytest.mark.timeout(TIMEOUT_DEEP_S + 60)],
            id="many",
        ),
    ],
)
def test_no_bytes_end_a_decoder_or_become_another_value(
    tmp_path: Path, records: int, timeout_s: float
) -> None:
    """Whatever the bytes, a record has exactly its value or a reason; the process lives, and comes
    back. It is one of its own, so that one that ends or hangs is a failure with its records.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    again = f"python {__file__} {seed} {records}"
    try:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", __file__, str(seed), str(records)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{again} hangs on {(tmp_path / 'batch').read_text()}")
    print(done.stdout)
    if done.returncode:
        pytest.fail(
            f"{again}: exit {done.returncode}\n{done.stderr[-4_000:]}\n"
            f"{(tmp_path / 'batch').read_text()[:9_000]}"
        )


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]))
