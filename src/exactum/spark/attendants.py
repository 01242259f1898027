"""Who attends a run of a query: one place that knows them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from pyspark.sql import DataFrame

from exactum import events
from exactum.errors import SettingRefused
from exactum.protocol.sink import QueryRun
from exactum.spark.attendant import Attendant
from exactum.spark.control.attendant import ControlAttendant
from exactum.spark.control.stream import ControlStream
from exactum.spark.life.attendant import LifeAttendant
from exactum.spark.life.life import current
from exactum.spark.life.progress import ProgressReports
from exactum.spark.life.stop_request import StopRequest
from exactum.spark.query import RunningQuery, reader_of
from exactum.spark.source.attendants import source_attendants
from exactum.spark.source.clients import Clients


def attendants(
    frame: DataFrame,
    batch_id: int,
    running: RunningQuery,
    run: QueryRun,
    control: Sequence[ControlStream],
    on_event: events.Listener,
) -> list[Attendant]:
    """The attendants of this run, which begins with batch ``batch_id``, in the order in which they are called.

    Raises:
        Refused: one of them finds that the query may not run like this.
        Unavailable: a server that one of them needs did not answer.
    """
    found: list[Attendant] = []
    with ExitStack() as undo:
        undo.callback(close, found)
        life = current()
        if life is not None:  # first: where it is to stop, nobody else begins the batch
            found.append(LifeAttendant(life, running, reader_of(frame, running)))
        if running.folder is not None:
            found.append(StopRequest(running, run, running.folder))
        clients = Clients(running)
        found.append(clients)  # before those who use them: it is closed after them
        found.extend(source_attendants(frame, running, run, clients, on_event))
        _refuse_same_name(control)
        for stream in control:
            found.append(ControlAttendant(stream, frame, running, run.incarnation, batch_id, on_event))
        found.append(ProgressReports(running, run, on_event))
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
            f"control= was given {names.count(twice[0])} streams of topics named {twice[0]!r}. Give each stream once; "
            "to use topics of one name on two clusters, mirror one of them under another name. Nothing was written."
        )


def close(attending: Iterable[Attendant]) -> None:
    """Close all, each whatever becomes of the others; an error is raised at the end."""
    with ExitStack() as closing:
        for attendant in attending:
            closing.callback(attendant.close)
