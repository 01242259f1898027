"""Who listens to a run of a query: one place that knows them all."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from exactum.errors import SettingRefused
from exactum.spark.control.listener import ControlListener
from exactum.spark.control.stream import ControlStream
from exactum.spark.epoch_listener import EpochListener
from exactum.spark.run.epoch_gate import EpochGate
from exactum.spark.run.progress import ProgressReports
from exactum.spark.run.session_settings import SessionSettings
from exactum.spark.run.stop_request import StopRequest
from exactum.spark.run_context import RunContext
from exactum.spark.source.clients import Clients
from exactum.spark.source.listeners import source_listeners
from exactum.spark.supervised.process import current
from exactum.spark.supervised.supervised_query import SupervisedQuery


def listeners(context: RunContext, control: Sequence[ControlStream]) -> list[EpochListener]:
    """The listeners of this run, in the order in which they are called.

    Raises:
        Refused: one of them finds that the query may not run like this.
        Unavailable: a server that one of them needs did not answer.
    """
    found: list[EpochListener] = []
    with ExitStack() as undo:
        undo.callback(close_listeners, found)
        supervised = current()
        stopping = threading.Event() if supervised is None else supervised.stopping
        gate = EpochGate(context, stopping)
        found.append(gate)  # first: where the query is to stop, nobody else begins the batch
        if supervised is not None:
            found.append(SupervisedQuery(supervised, context, gate))
        if context.query.folder is not None:
            found.append(StopRequest(context, context.query.folder, gate))
        found.append(SessionSettings(context))
        clients = Clients(context.query)
        found.append(clients)  # before those who use them: it is closed after them
        found.extend(source_listeners(context, clients))
        _refuse_same_name(control)
        for stream in control:
            found.append(ControlListener(stream, context))
        found.append(ProgressReports(context))
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


def close_listeners(listening: Iterable[EpochListener]) -> None:
    """Close all, each whatever becomes of the others; an error is raised at the end."""
    with ExitStack() as closing:
        for listener in listening:
            closing.callback(listener.close)
