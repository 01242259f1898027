"""The three guarantees, and the start of a query under one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from exactum import events
from exactum.checkpoint.query_place import Places
from exactum.errors import SettingRefused
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.sink import Guarantee, Sink
from exactum.spark import arguments
from exactum.spark.arguments import DeliverySettings, Targets
from exactum.spark.connect import start as connect
from exactum.spark.control.stream import ControlStream
from exactum.spark.load import Loaded, loaded
from exactum.spark.open_queries import refuse_while_importing
from exactum.spark.query import is_connect
from exactum.spark.start import BatchFunction, started
from exactum.spark.streaming_query import Query

Control = ControlStream | Sequence[ControlStream]

_STARTED = "_exactum_started"
"""Marks a writer that a query was started with, and another may be."""


def exactly_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    staging: str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> Delivery:
    """Every epoch becomes visible once in every sink, or in none, through any crash.

    Args:
        sinks: where each micro-batch goes; all of them under one decision. Each may have its own
            view of it (``rows=``); the source is read once for all.
        dead_letters: a sink for the rows that another one can never take, in the same epoch under
            the same decision (``protocol.sink.DEAD_LETTER_COLUMNS``); None: such a row stops the
            query with ``RowsRefused``.
        decision_log: where decisions are recorded; default
            ``<checkpointLocation>/exactum/decisions/``. A path (or ``file:`` URI) is a folder in
            which each query has its own, seen by every machine that may run the driver. Give the
            same one at each start: with another one it is refused (``CheckpointRefused``). An
            object with ``read``, ``decide``, ``prune`` and ``close`` is used as it is; its
            ``log_id()``, if it has one, says which log it is.
        staging: where rows of sinks that are no Kafka topics wait for the decision; default
            ``<checkpointLocation>/exactum/staging/``. A folder, or the URL of a prefix in an object
            store, that the driver and all executors share.
        control: a ``control_stream``, or several: rules that every task of an epoch sees in the
            same state.
        on_event: called with every event of the protocol (see ``exactum.events``), besides the log
            ``logging.getLogger("exactum")``. Must not block.

    Returns:
        What starts a query: see ``Delivery.start``.

    Raises:
        SettingRefused: an argument is missing or is not what it must be. What needs Spark or a
            server is checked by ``start``.
    """
    return Delivery(
        Targets(sinks, dead_letters),
        Guarantee.EXACTLY_ONCE,
        Places(decision_log, staging),
        control,
        on_event,
    )


def at_least_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    staging: str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> Delivery:
    """Every row is acknowledged by every sink before Spark goes on; a crash writes the batch again.

    No decisions are recorded. What an earlier run under ``exactly_once`` has decided is committed
    first, and what it left open is aborted.

    Args:
        sinks: as for ``exactly_once``.
        dead_letters: as for ``exactly_once``; default None.
        decision_log: as for ``exactly_once``; it says what earlier runs have decided.
        staging: as for ``exactly_once``.
        control: as for ``exactly_once``; default none.
        on_event: as for ``exactly_once``; default None.

    Returns:
        What starts a query: see ``Delivery.start``.

    Raises:
        SettingRefused: as ``exactly_once``.
    """
    return Delivery(
        Targets(sinks, dead_letters),
        Guarantee.AT_LEAST_ONCE,
        Places(decision_log, staging),
        control,
        on_event,
    )


def at_most_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    staging: str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> Delivery:
    """A batch that was begun is never written again: a crash or a failing task loses rows, none is
    doubled.

    A task that Spark tries again writes nothing. On a cluster the session needs
    ``spark.stage.maxConsecutiveAttempts=1``.

    Args:
        sinks: as for ``exactly_once``.
        dead_letters: as for ``exactly_once``; default None.
        decision_log: as for ``exactly_once``; it records which batch was begun.
        staging: as for ``exactly_once``.
        control: as for ``exactly_once``; default none.
        on_event: as for ``exactly_once``; default None.

    Returns:
        What starts a query: see ``Delivery.start``.

    Raises:
        SettingRefused: as ``exactly_once``.
    """
    return Delivery(
        Targets(sinks, dead_letters),
        Guarantee.AT_MOST_ONCE,
        Places(decision_log, staging),
        control,
        on_event,
    )


class Delivery:
    """Where a query's micro-batches go, and under which guarantee: what ``exactly_once`` and its
    like return. Serves one query at a time, and any number of starts of it one after another.

    Args:
        targets: The sinks, and that of the dead letters.
        guarantee: What is promised of each row.
        places: What was given as ``decision_log`` and ``staging``.
        control: The control streams.
        on_event: Called with every event of the protocol; None: nobody is.
    """

    def __init__(
        self,
        targets: Targets,
        guarantee: Guarantee,
        places: Places,
        control: Control,
        on_event: events.Listener | None,
    ) -> None:
        self._call = guarantee.name.lower()
        self._settings = DeliverySettings.checked(targets, guarantee, places, control, on_event)
        self._starting = threading.Lock()
        self._query: Query | None = None

    @property
    def sinks(self) -> dict[str, Sink]:
        """By its participant's name each sink that it writes to, for ``--sinks`` of a command."""
        targets = self._settings.targets
        return dict(zip(targets.names(), targets.all(), strict=True))

    def start(
        self, writer: DataStreamWriter, *, checkpoint: str | Path, name: str | None = None
    ) -> Query:
        """Start a streaming query that writes into these sinks.

        Connects, and checks everything that can be checked before the first row. The first
        micro-batch fences earlier runs and finishes what they have decided, before it writes: until
        there is data, an earlier run is not fenced. In a process that ``exactum run --standby``
        holds in reserve, ``start`` waits until the other process is gone.

        Args:
            writer: ``frame.writeStream`` with its trigger, its output mode and its options; without
                ``foreachBatch``, ``checkpointLocation`` and ``queryName``.
            checkpoint: the folder, or the URL, where Spark and exactum keep how far the query came:
                the query is the same as long as this is. Spark's ``checkpointLocation``.
            name: of the query, for logs and pages; default none. Spark's ``queryName``.

        Returns:
            The query, with every public name of PySpark's ``StreamingQuery``.

        Raises:
            SettingRefused: an argument or a setting cannot be, this object's last query runs, or a
                command imports the script for its sinks.
            ExactumError: the query cannot be run like this, or a server did not answer. It is
                stopped then.
        """
        refuse_while_importing()
        if not hasattr(writer, _STARTED):  # it keeps what it was given then
            arguments.checked_writer(writer)
        place = arguments.checked_checkpoint(checkpoint)
        with self._starting:
            if self._query is not None and self._query.isActive:
                raise SettingRefused(
                    "OBJECT_SHARED",
                    f"This {self._call} object runs query {self._query.id} already. Stop that one "
                    "first, or make an object for each query. Nothing was started.",
                )
            setattr(writer, _STARTED, True)
            start = connect.started if is_connect(writer) else started
            self._query = start(self._settings, writer, place, name)
            return self._query

    def write(self, frame: DataFrame, *, id: str, compare: bool = True) -> Loaded:  # noqa: A002
        """Load a frame that does not stream into all sinks, once: a call that is repeated with the
        same ``id``, after a crash or by mistake, writes nothing again.

        It needs ``exactly_once(decision_log=...)``, which keeps the ids for good, and where a sink
        stages rows ``staging=`` (default: below a ``decision_log`` that is a folder).

        Args:
            frame: the rows.
            id: a name for these rows, and no others: ``"orders-2026-11-28"``.
            compare: default True: an id that was used is refused for rows with another number or
                hash, for which the frame is computed once more; False: it is not looked at.

        Returns:
            Whether the rows were written by this call.

        Raises:
            CheckpointRefused: the id was used for other rows.
            FrameRefused: the frame streams, or a sink cannot take its columns.
            SettingRefused: an argument or a setting cannot be, or a command imports the script for
                its sinks.
            ExactumError: the load failed, or a server did not answer: call it again.
        """
        refuse_while_importing()
        return loaded(self._settings, frame, id, compare=compare)

    def for_each_batch(self, *, checkpoint: str | Path) -> Callable[[DataFrame, int], None]:
        """For platforms that start queries themselves: a function of (frame, batch id) for
        ``foreachBatch``. Everything is checked with the query's first micro-batch, and errors come
        by Spark's text. Use ``start`` where you can.

        Args:
            checkpoint: what the platform gives the query as its ``checkpointLocation``; another
                query is refused.

        Raises:
            SettingRefused: it is no place.
        """
        return BatchFunction(self._settings, arguments.checked_checkpoint(checkpoint))

    def __call__(self, frame: Any, batch_id: Any) -> None:
        """
        Raises:
            SettingRefused: it was given to ``foreachBatch`` itself.
        """
        raise self._start_wanted()

    def __reduce__(self) -> Any:
        raise self._start_wanted()  # by foreachBatch over Spark Connect, for its server

    def _start_wanted(self) -> SettingRefused:
        return SettingRefused(
            "START_WANTED",
            f"exactum.{self._call}(...) was given to foreachBatch. It starts the query itself: "
            f"once = exactum.{self._call}(...); query = once.start(frame.writeStream, "
            'checkpoint="/data/orders"). Nothing was written.',
        )
