"""What ``make demo`` installs."""

from __future__ import annotations

from tests.kit.packaging.demo_lock import DEMO, DEV, entries, text


def test_it_has_the_pins_of_development() -> None:
    """With their hashes, and no other packages than the demo needs: python -m
    tests.kit.packaging.demo_lock.
    """
    locked = list(entries(DEMO.read_text()))
    assert {*locked} <= {*entries(DEV.read_text())}
    assert {"pyspark", "hatchling", "confluent-kafka", "py4j"} <= {name for name, _ in locked}
    assert DEMO.read_text() == text()
