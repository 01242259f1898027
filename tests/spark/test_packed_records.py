"""Arrays of packed records that another jar has packed are refused, and never read as others."""

from __future__ import annotations

from struct import pack

import pytest

from exactum.errors import SettingRefused
from exactum.spark.write.packed_records import LAYOUT, OFFSET, Layout, unpacked
from tests.kit.errors import raised

OFFSETS = Layout((OFFSET,), ((OFFSET, False, "offset"),), "UTC")


def test_offsets() -> None:
    batch = unpacked(pack("<iiqq", LAYOUT, 2, 5, 7), OFFSETS)
    assert batch.to_pydict() == {"offset": [5, 7]}


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(pack("<iiqq", LAYOUT + 1, 2, 5, 7), id="another layout"),
        pytest.param(pack("<qqq", 2, 5, 7), id="none yet"),
        pytest.param(pack("<iiqqq", LAYOUT, 2, 5, 7, 9), id="a column more"),
    ],
)
def test_another_jar(array: bytes) -> None:
    with raised(SettingRefused, "JAR_DIFFERS", "columnar-kafka.jar"):
        unpacked(array, OFFSETS)
