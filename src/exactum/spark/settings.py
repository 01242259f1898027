"""Settings of a session that exactum reads, or makes for a query that is started.

In checkpoint format 2 every attempt at a micro-batch keeps its state under an id of its own, and
Spark's commit log names those that count. Spark takes the format from a setting when it starts a
query, and keeps it nowhere but in the first line of its commit log: a query with another one does
not start.

    commits/41     v2                                       that was format 2
                   {"stateUniqueIds": {"0": [["<id>"]]}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_on(session: SparkSession, name: str) -> bool:
    """Whether the setting is anything but ``false``. What is not set is on."""
    return str(session.conf.get(name, "true")).lower() != "false"


def is_one_process(master: str) -> bool:
    """Whether tasks run in the driver's own JVM, as with ``local[2]``."""
    return master.startswith("local") and not master.startswith("local-cluster")


FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PLAIN, WITH_IDS = "1", "2"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The only store that has format 2."""
_WITH_IDS_LOGGED = "v2"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""With it a batch writes what it has changed of its state, and not all of it."""

Newest = Callable[[str], "str | None"]
"""From a log of Spark's, "commits" or "offsets", to the text of its last file; None: it has none.
"""


@contextmanager
def state_format(session: SparkSession, newest: Newest) -> Iterator[None]:
    """Start a query within this: it has the format of its checkpoint; with a new one format 2, in
    RocksDB where no state store is named. What the user has set himself counts. For one start at a
    time: settings of a session are those of all queries that are started meanwhile.
    """
    chosen = {} if session.conf.get(FORMAT, None) is not None else _chosen(session, newest)
    chosen = {name: own for name, own in chosen.items() if session.conf.get(name, None) is None}
    for name, value in chosen.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in chosen:
            session.conf.unset(name)


def _chosen(session: SparkSession, newest: Newest) -> dict[str, str]:
    committed = newest("commits")
    if committed is not None:
        has_ids = committed.partition("\n")[0].strip() == _WITH_IDS_LOGGED
    else:
        # Spark goes on with the store of the first start, whatever the session says now.
        planned = newest("offsets")
        kept = None if planned is None else _kept(planned)
        has_ids = (kept or session.conf.get(PROVIDER, None) or ROCKSDB) == ROCKSDB
    if not has_ids:
        return {FORMAT: PLAIN}
    return {FORMAT: WITH_IDS, PROVIDER: ROCKSDB, CHANGELOG: "true"}


def _kept(planned: str) -> str | None:
    """The store that an offset log names; None where it cannot be read: Spark says so."""
    try:
        found = json.loads(planned.splitlines()[1])["conf"].get(PROVIDER)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return None
    return None if found is None else str(found)
