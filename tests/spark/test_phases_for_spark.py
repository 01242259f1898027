"""Where people already look: Spark's own progress has the phases of an epoch."""

from __future__ import annotations

from typing import Any

import pytest

from exactum.spark.run.phases_for_spark import SETTING

pytestmark = pytest.mark.spark

PHASES = {"exactum.write", "exactum.verify", "exactum.decide", "exactum.commit", "exactum.sweep"}


@pytest.mark.variants(1)
@pytest.mark.parametrize("enabled", [True, False])
def test_sparks_progress_has_the_phases(query: Any, enabled: bool) -> None:
    """They are parts of ``addBatch``; the setting leaves Spark's report as it is."""
    query.spark.conf.set(SETTING, str(enabled).lower())
    try:
        running = query.start(query.exactly_once(), processingTime="0 seconds")
        query.give(1, 2)
        running.processAllAvailable()
        told = [report["durationMs"] for report in running.recentProgress]
        running.stop()
    finally:
        query.spark.conf.unset(SETTING)
    ours = [durations for durations in told if durations.keys() >= PHASES]
    assert bool(ours) == enabled, told
    for durations in ours:
        assert sum(durations[name] for name in PHASES) <= durations["addBatch"] + len(PHASES)
    assert query.values() == [1, 2]
