"""Half a minute of random faults; ``python -m chaos.soak`` goes on for as long as it is told."""

from __future__ import annotations

import pytest

from chaos.soak import soaked

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.deep]

SEED = 20261121
MINUTES = 0.5


def test_random_faults_for_half_a_minute() -> None:
    """The bank over Kafka, PostgreSQL, MariaDB and files: exact in the end, and nothing that was seen
    on the way is wrong or goes away.
    """
    assert soaked(SEED, MINUTES) == 0, "the timeline of faults is printed above"
