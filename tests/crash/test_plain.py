"""The job without any fault: what every crash test builds on."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.jobs import check_quiet, new_world

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.deep
def test_many_epochs_without_a_fault_are_exact(kafka: LocalKafka, topic, tmp_path: Path) -> None:
    """Ten epochs into two topics: exact in both, and not a line of warning."""
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=600, outputs=2)
    with world.reader() as reader, world.job() as job:
        assert job.finishes() == [{"outcome": "finished"}]
        world.check_exact(reader)
        check_quiet(job)
