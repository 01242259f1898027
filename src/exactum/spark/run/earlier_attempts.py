"""What earlier runs of a query have left in state stores that are still loaded: the state of a
micro-batch that they computed, and that comes out as another one now.

Spark unloads the stores of a run that is over at the next maintenance, and makes a last snapshot of
each. That may come after a later run has computed the same version of the state, whose snapshot it
is then taken for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from exactum.checkpoint.offset_log import local_folder
from exactum.errors import EpochAborted
from exactum.protocol.sink import Guarantee
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.state_stores import LoadedStores, StillMaintained
from exactum.spark.master import is_one_process
from exactum.spark.run.standing_epochs import ON_DIFFERENCE
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")

_tried: dict[tuple[str, str], tuple[str, int]] = {}
"""Of this process: by Spark's application and checkpoint, the run that wrote last, and which batch.
A run knows nothing else of those before it."""


class EarlierAttempts:
    """Those of the runs before this one, in checkpoint format 1."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        application = str(context.session.sparkContext.applicationId)
        self._key = application, context.query.checkpoint

    def trying(self, batch_id: int) -> None:
        """This run is about to compute the batch."""
        _tried[self._key] = self._context.query.run_id, batch_id

    def unload(self, batch_id: int, locations: Iterable[str]) -> None:
        """Unload what earlier runs have loaded of the state in the folders ``locations``, so that
        nothing of it is written from here on.

        Raises:
            EpochAborted: it cannot be, or nobody can tell, and an earlier run has computed
                ``batch_id``. A new application has none of it, so the attempt is void, not the
                checkpoint.
        """
        if not is_one_process(self._context.query.master):
            self._refuse(
                batch_id,
                "the executors may still have its state loaded, and Spark makes a last snapshot "
                "of it when it unloads it, which nobody can wait for",
            )
            return
        try:
            stores = LoadedStores(self._context.session)
            for store in stores.all():
                if store.run_id != self._context.query.run_id and any(
                    _is_same(store.location, one) for one in locations
                ):
                    stores.retire(store)
                    logger.debug("%s: unloaded %s", self._context.query, store)
        except StillMaintained as why:
            self._refuse(batch_id, str(why))
        except JvmError as error:
            logger.debug("%s: old state stores: %s", self._context.query, error)
            self._refuse(batch_id, f"its state could not be unloaded ({error})")

    def _refuse(self, batch_id: int, why: str) -> None:
        run_id, tried = _tried.get(self._key, ("", -1))
        if tried != batch_id or run_id == self._context.query.run_id:
            return
        found = (
            f"{self._context.query}: run {run_id} of this query, in this Spark application, has "
            f"computed micro-batch {batch_id} already. The state that it left can come back if the "
            f"batch gives another result now: {why}."
        )
        exact = self._context.run.guarantee is Guarantee.EXACTLY_ONCE
        if not exact or self._context.session.conf.get(ON_DIFFERENCE, "stop") == "warn":
            logger.warning("%s", found)
            return
        raise EpochAborted(
            f"{found} Start the script again, in a new Spark application. (A script that ends "
            "with its query's error is started again by exactum run.) A new checkpoint can have "
            "spark.sql.streaming.stateStore.checkpointFormatVersion=2, which tells the attempts "
            f"apart. Where the query gives the same result each time, {ON_DIFFERENCE}=warn lets it "
            "go on. Nothing was written."
        )


def _is_same(one: str, other: str) -> bool:
    ours, theirs = local_folder(one), local_folder(other)
    if ours is None or theirs is None:
        return one == other
    return os.path.realpath(ours) == os.path.realpath(theirs)
