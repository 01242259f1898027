"""A run whose guarantee is another one than the last run's: which batches have no decisions is on
record (``checkpoint.guarantee_record``).
"""

from __future__ import annotations

from exactum.checkpoint.guarantee_record import GuaranteeRecord
from exactum.checkpoint.layout import GUARANTEES
from exactum.protocol.sink import WriteOrder
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run.record_files import record_files
from exactum.spark.run_context import RunContext


class GuaranteeChange(EpochListener):
    """Of one run. ``stretches`` ran under ``at_least_once`` before it."""

    def __init__(self, context: RunContext) -> None:
        """
        Raises:
            CheckpointRefused: the record is damaged.
        """
        files = record_files(context.session, context.query.checkpoint, GUARANTEES)
        self._record = GuaranteeRecord(files, context.run.query_id)
        self._is_on_record = False
        self.stretches = self._record.stretches()

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """See the base class."""
        if not self._is_on_record:
            self._record.begin(order.run.guarantee, batch.batch_id)
            self._is_on_record = True
