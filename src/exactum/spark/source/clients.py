"""The driver's connections to the clusters that a query reads from, which last as long as the
run.
"""

from __future__ import annotations

import logging

from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import librdkafka_settings
from exactum.kafka.requests import TopicRequests
from exactum.spark.live import RunningSource
from exactum.spark.query import Run
from exactum.spark.source.source_options import SourceOptions

logger = logging.getLogger("exactum")


class Clients:
    """One client for each way to connect. They are closed with the run.

    Forgotten ones would stay: Spark's JVM refers to what ``foreachBatch`` was given for as long as
    it likes, and what holds more than 1,024 descriptors cannot be called by that JVM any more (py4j
    waits by ``select``).
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._made: dict[tuple[tuple[str, str], ...], TopicRequests] = {}

    def of(self, source: RunningSource) -> TopicRequests | None:
        """A client for the source's cluster; None, with a warning, where the driver cannot log in
        as Spark does.

        Raises:
            SettingRefused: likewise, and the source's offsets are to be committed to a group.
        """
        where = str(self._run)
        chosen = SourceOptions.of(source.options)
        try:
            settings = librdkafka_settings(source.options, chosen.client, where)
            key = tuple(sorted(settings.items()))
            if key not in self._made:
                self._made[key] = TopicRequests(settings, where)
        except SettingRefused as error:
            if chosen.commit_offsets:
                raise
            logger.warning(
                "Source %d is not watched for topics that change: %s", source.index, error
            )
            return None
        return self._made[key]

    def close(self) -> None:
        """After those who use them: whoever still waits for an answer hears that it is closed."""
        for requests in self._made.values():
            requests.close()
