"""Settings of the session that change what a query's expressions give, and that Spark does not keep
in the checkpoint: a start with other ones than the last run had says so.

Another time zone cuts days elsewhere (``to_date``, ``date_trunc``), so rows of one day become two
keys of the state, and a folder that is named by a timestamp has another name.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace
from pyspark.sql import SparkSession

from exactum.spark.jvm.error import JvmError
from exactum.spark.query import Run

logger = logging.getLogger("exactum")

WATCHED = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.timestampType",
    "spark.sql.caseSensitive",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.legacy.timeParserPolicy",
)


class SessionSettings:
    """Compares this run's with those of the run before, and remembers them once a batch stands."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._now: dict[str, str] = {}

    def compare(self) -> None:
        """Say what is another one."""
        try:
            self._now = settings_of(self._run.session)
        except JvmError as error:
            logger.debug("%s: settings are not compared: %s", self._run, error)
        before = self._run.record.content.settings
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
                self._run,
                "; ".join(changed),
            )

    def remember(self) -> None:
        """A batch stands with these."""
        if self._now:
            self._run.record.change(lambda record: replace(record, settings=self._now))


def settings_of(session: SparkSession) -> dict[str, str]:
    """
    Raises:
        JvmError: Spark does not answer.
    """
    found = {name: session.conf.get(name, None) for name in WATCHED}
    return {name: value for name, value in found.items() if value is not None}
