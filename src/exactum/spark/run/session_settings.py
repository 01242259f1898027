"""Settings of the session that change what a query's expressions give, and that Spark does not keep
in the checkpoint: a start with other ones than the last run had says so.

Another time zone cuts days elsewhere (``to_date``, ``date_trunc``), so rows of one day become two
keys of the state, and a folder that is named by a timestamp has another name.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace
from pyspark.sql import SparkSession

from exactum.protocol.model import Completed
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.jvm.error import JvmError
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")

WATCHED = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.timestampType",
    "spark.sql.caseSensitive",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.legacy.timeParserPolicy",
)


class SessionSettings(EpochListener):
    """Compares this run's with those of the run before, and remembers them once a batch stands."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._now: dict[str, str] = {}

    def begin(self, batch: Batch) -> None:
        """See the base class."""
        if not batch.first:
            return
        try:
            self._now = settings_of(self._context.session)
        except JvmError as error:
            logger.debug("%s: settings are not compared: %s", self._context.query, error)
        before = self._context.record.content.settings
        changed = [
            f"{name} was {before[name]!r} and is {value!r} now"
            for name, value in self._now.items()
            if before.get(name, value) != value
        ]
        if changed:
            logger.warning(
                "%s is started with other settings than before, which Spark does not keep in the "
                "checkpoint: %s. From here on the query may give another result for the same "
                "rows: days and hours are cut elsewhere, keys of its state and folders of its "
                "files are named otherwise. If that is not meant, stop it and set them as before.",
                self._context.query,
                "; ".join(changed),
            )

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class."""
        if batch.first and self._now:
            self._context.record.change(lambda record: replace(record, settings=self._now))


def settings_of(session: SparkSession) -> dict[str, str]:
    """
    Raises:
        JvmError: Spark does not answer.
    """
    found = {name: session.conf.get(name, None) for name in WATCHED}
    return {name: value for name, value in found.items() if value is not None}
