"""A run whose guarantee is another one than the last run's: which batches have no decisions is on
record (``checkpoint.guarantee_record``).
"""

from __future__ import annotations

import logging

from exactum.checkpoint.guarantee_record import GuaranteeRecord
from exactum.checkpoint.layout import GUARANTEES
from exactum.protocol.sink import Guarantee
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.source.record_files import record_files

logger = logging.getLogger("exactum")


class GuaranteeChange(EpochListener):
    """Of one run. ``stretches`` ran under ``at_least_once``; ``void`` are batches before its first
    one whose decisions must not be carried out any more.
    """

    def __init__(self, context: RunContext) -> None:
        """
        Raises:
            CheckpointRefused: the record is damaged.
        """
        files = record_files(context.session, context.query.checkpoint, GUARANTEES)
        self._record = GuaranteeRecord(files, context.run.query_id)
        self._guarantee = context.run.guarantee
        self.stretches = self._record.stretches()
        self.void = self.stretches.void(context.first_batch_id)
        last = max(self.void, default=None)
        if last is not None and self._guarantee is Guarantee.EXACTLY_ONCE:
            logger.debug(
                "%s: from batch %d on at_least_once has written; what is decided of that batch and "
                "open is aborted",
                context.query,
                last,
            )

    def begin(self, batch: Batch) -> None:
        """See the base class."""
        if batch.first:
            self._record.begin(self._guarantee, batch.batch_id)
