"""The first program of docs/source.md runs, word by word but for addresses, folders and topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.conftest import TopicFactory
from tests.docs.test_guides import ROWS, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark", "settings_put_back")]


def test_reading(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> None:
    """Each record once, in its order, with where it came from."""
    lake = tmp_path / "lake"
    run("source.md", kafka, topic, tmp_path, {"/lake/orders": str(lake)})
    files = sorted(lake.glob("part-*"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(row["partition"], row["offset"]) for row in found] == [
        (0, n) for n in range(len(ROWS))
    ]
    assert [json.loads(row["value"])["id"] for row in found] == [n for n, _, _ in ROWS]
