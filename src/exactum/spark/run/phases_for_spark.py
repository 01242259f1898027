"""Tells Spark the phases of an epoch, so that they stand where people already look: in
``query.lastProgress``, in every ``StreamingQueryListener``, and in Spark's own page.

    "durationMs": {"addBatch": 96, "exactum.write": 61, "exactum.verify": 9, ...}

They are parts of ``addBatch``. At most one micro-batch a second is told of, for the telling is on
the query's path.
"""

from __future__ import annotations

import logging
import math
import time

from exactum.protocol.model import Completed
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.trigger_durations import TriggerDurations
from exactum.spark.run_context import RunContext
from exactum.spark.switch import is_on

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.progress.enabled"
PREFIX = "exactum."
EVERY_S = 1.0


class PhasesForSpark(EpochListener):
    """A listener that does nothing where ``spark.exactum.progress.enabled`` is false."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._durations: TriggerDurations | None = None
        if is_on(context.session, SETTING):
            self._durations = TriggerDurations(context.query.execution, context.session)
        self._reported_s = -math.inf

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class."""
        now_s = time.monotonic()
        if self._durations is None or not completed.phase_ms or now_s - self._reported_s < EVERY_S:
            return
        self._reported_s = now_s
        try:
            self._durations.add(
                {f"{PREFIX}{name}": round(ms) for name, ms in completed.phase_ms.items()}
            )
        except (JvmError, OSError, AttributeError, TypeError) as error:
            self._durations = None
            logger.debug("%s: Spark is not told of phases: %s", self._context.query, error)
