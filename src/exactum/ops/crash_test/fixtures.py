"""Fixtures for tests of your own jobs. pytest finds them wherever exactum is installed.

A run that uses none of them pays for the import of this file, which needs pytest alone. A server
that is missing is an error, never a skipped test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from exactum.local import LocalKafka
    from exactum.ops.crash_test.crash_test import CrashTest
    from exactum.ops.crash_test.topics import LocalTopics


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python reads its schemas by a call that Python 3.11 and 3.12 warn of, 200 times."""
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )


@pytest.fixture(scope="session")
def exactum_kafka() -> Iterator[LocalKafka]:
    """A real Kafka broker for the session, `exactum.local.LocalKafka`. It needs Java."""
    from exactum.local import LocalKafka

    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture
def exactum_topics(exactum_kafka: LocalKafka) -> Iterator[LocalTopics]:
    """Topics on the session's broker: made, filled, and read with ``read_committed``."""
    from exactum.ops.crash_test.topics import LocalTopics

    with closing(LocalTopics(exactum_kafka)) as topics:
        yield topics


@pytest.fixture
def exactum_crash_test(exactum_kafka: LocalKafka, tmp_path: Path) -> Iterator[CrashTest]:
    """Kill and compare: call it with your script. Checkpoints and logs are in ``tmp_path``."""
    from exactum.ops.crash_test.crash_test import CrashTest

    with closing(CrashTest(exactum_kafka, tmp_path)) as crash_test:
        yield crash_test
