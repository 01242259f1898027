"""The fixtures that pytest finds wherever exactum is installed, and the topics that they give."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from exactum.local import LocalKafka
from exactum.ops.crash_test.topics import LocalTopics
from tests.kit.python import python
from tests.kit.testing.published import pytest_of_a_user
from tests.kit.waiting import WAIT_MAX_S

IMPORTED = """
import sys
sys.modules["pyspark"] = None
import pytest
before = set(sys.modules)
import exactum.ops.crash_test.fixtures
new = set(sys.modules) - before
print(sorted({name.partition(".")[0] for name in new} - set(sys.stdlib_module_names)))
print(len([name for name in new if name.startswith("exactum")]))
"""

BROKER = """
def test_kafka(exactum_kafka, exactum_topics):
    assert exactum_topics.read(exactum_topics.create("t", [("k", "v")])) == [("k", "v")]
"""


def test_pytest_is_made_to_import_one_small_file() -> None:
    """No other package, nothing of exactum but the packages it lies in, and no PySpark."""
    done = python(IMPORTED)
    assert done.stdout.split("\n")[:2] == ["['exactum']", "6"], done.stdout
    assert done.stderr == ""


@pytest.mark.deep
def test_pytest_finds_them_by_the_entry_point(tmp_path: Path) -> None:
    """And a broker that starts is one that works."""
    (tmp_path / "test_servers.py").write_text(BROKER)
    said = pytest_of_a_user(tmp_path, "-q", "test_servers.py")
    assert "1 passed" in said, said[-3000:]


@pytest.fixture
def topics(kafka: LocalKafka) -> LocalTopics:
    return LocalTopics(kafka)


def test_records_come_back_as_they_were_given(topics: LocalTopics) -> None:
    """Bytes where they are no text."""
    records = [("a", "1"), (None, b"2"), ("b", None), ("", b"\xff"), ("a", "ü")]
    name = topics.create("orders", records, partitions=1)
    assert topics.read(name) == [("a", "1"), (None, "2"), ("b", None), ("", b"\xff"), ("a", "ü")]
    assert topics.ends(name) == {0: 5}


def test_what_a_transaction_has_not_committed_is_not_read(
    kafka: LocalKafka, topics: LocalTopics
) -> None:
    """While it is open it hides what stands behind it; after an abort nothing."""
    name = topics.create("orders", partitions=1)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    writer.init_transactions(WAIT_MAX_S)
    writer.begin_transaction()
    writer.produce(name, "open", "k")
    assert writer.flush(WAIT_MAX_S) == 0
    topics.produce(name, [("k", "behind it")])
    assert (topics.read(name), topics.hidden(name)) == ([], 2)
    writer.abort_transaction(WAIT_MAX_S)
    assert topics.read(name) == [("k", "behind it")]
    assert topics.hidden(name) == 0
