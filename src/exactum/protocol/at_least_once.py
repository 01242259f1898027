"""At least once: no decision and no transactions. Spark repeats a batch that it has not logged as
done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from exactum import events
from exactum.protocol.epoch_protocol import Completed, EpochProtocol
from exactum.protocol.model import SourceOffsets, rows_of
from exactum.protocol.participant import Participant
from exactum.protocol.sink import QueryRun, Write, WriteOrder


class AtLeastOnce(EpochProtocol):
    """Runs the batches of one incarnation, in order; when ``run`` returns, every row is
    acknowledged.
    """

    def __init__(
        self,
        run: QueryRun,
        *,
        participants: Sequence[Participant] = (),
        on_event: events.Listener = lambda event: None,
    ) -> None:
        self._run = run
        self._participants = tuple(participants)
        self._emit = on_event
        self._sequence = 0

    def run(self, batch_id: int, offsets: SourceOffsets, write: Write) -> Completed:
        """Write the batch, whether or not it was written before."""
        self._sequence += 1
        began_s = time.perf_counter()
        prepared = tuple(write(WriteOrder(self._run, batch_id, 0, self._sequence)))
        took_ms = (time.perf_counter() - began_s) * 1000
        rows = rows_of(prepared)
        self._emit(
            events.EpochCompleted(
                self._run.query_id,
                batch_id,
                self._run.incarnation,
                0,
                len(prepared),
                rows,
                {"write": took_ms},
            )
        )
        return Completed(written=True, rows=rows)

    def prune(self, below_batch_id: int) -> None:
        """Nothing is kept, so nothing is pruned."""

    def close(self) -> None:
        """See the base class."""
        for participant in self._participants:
            participant.close()
