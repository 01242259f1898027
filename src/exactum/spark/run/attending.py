"""Who serves a run besides its protocol: those who attend its batches, what is due now and then,
and what is closed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from exactum.errors import SettingRefused
from exactum.spark.control.listener import ControlListener
from exactum.spark.control.stream import ControlStream
from exactum.spark.epoch_listener import EpochListener
from exactum.spark.open_queries import open_queries
from exactum.spark.query import Run
from exactum.spark.run import termination
from exactum.spark.run.epoch_gate import EpochGate
from exactum.spark.run.housekeeping import Duty
from exactum.spark.run.progress import ProgressReports
from exactum.spark.run.stop_request import StopRequest
from exactum.spark.source.bounds import Bounds, stops_of
from exactum.spark.source.watch import Clients, topic_watch_of
from exactum.spark.supervised.process import current


class Attending:
    """``listeners`` are called in their order, the gate first: where the query is to stop, nobody
    else begins the batch.
    """

    def __init__(self, gate: EpochGate) -> None:
        self.gate = gate
        self.listeners: list[EpochListener] = [gate]
        self.duties: list[Duty] = []
        self._closing = ExitStack()

    def attends(self, listener: EpochListener) -> None:
        """From here on it is called for each batch, and closed with the run."""
        self.listeners.append(listener)
        self.closes(listener.close)

    def closes(self, close: Callable[[], object]) -> None:
        """Close what is given later first."""
        self._closing.callback(close)

    def close(self) -> None:
        """Close all, each whatever becomes of the others; an error is raised at the end.
        Idempotent.
        """
        self._closing.close()


def stop_requests(run: Run, attending: Attending) -> None:
    """Where the checkpoint lies in a folder: ``exactum savepoint create --stop`` asks there."""
    if run.folder is not None:
        request = StopRequest(run, run.folder, attending.gate)
        attending.closes(request.close)
        attending.duties.append(request)


def watch_topics(run: Run, attending: Attending) -> None:
    """Raises as ``topic_watch_of``."""
    clients = Clients(run)
    attending.closes(clients.close)  # after those who use them
    topics = topic_watch_of(run, clients)
    if topics is not None:
        attending.attends(topics)
        attending.duties += [topics, topics.groups]


def classic_attending(run: Run, control: Sequence[ControlStream]) -> Attending:
    """Those of a run in this process's JVM.

    Raises:
        Refused: one of them finds that the query may not run like this.
        Unavailable: a server that one of them needs did not answer.
    """
    supervised = current()
    stopping = open_queries.stopping if supervised is None else supervised.stopping
    found = Attending(EpochGate(run, stopping))
    with ExitStack() as undo:
        undo.callback(found.close)
        if supervised is None:
            found.closes(termination.watch(run))
        stop_requests(run, found)
        watch_topics(run, found)
        _refuse_same_name(control)
        for stream in control:
            found.attends(ControlListener(stream, run))
        stops = stops_of(run)
        if stops:
            bounds = Bounds(run, stops, found.gate)
            found.attends(bounds)
            found.duties.append(bounds)
        found.duties.append(ProgressReports(run))
        undo.pop_all()
    return found


def _refuse_same_name(control: Sequence[ControlStream]) -> None:
    """What tasks are given, and what is on record, goes by the topic's name.

    Raises:
        SettingRefused: two of the streams have one name.
    """
    names = [stream.topic for stream in control]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingRefused(
            "CONTROL_ARGUMENT",
            f"control= was given {names.count(twice[0])} streams of topics named {twice[0]!r}. "
            "Give each stream once; to use topics of one name on two clusters, mirror one of them "
            "under another name. Nothing was written.",
        )
