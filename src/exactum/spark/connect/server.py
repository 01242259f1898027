"""What the process beside Spark's server calls with each micro-batch: the coordinator's side."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint.query_place import Places
from exactum.errors import ExactumError, SettingRefused
from exactum.protocol.sink import Guarantee
from exactum.spark.batches import Batches
from exactum.spark.connect.decodings import DecodingPlan
from exactum.spark.connect.engine import Connect
from exactum.spark.connect.live import ConnectRun
from exactum.spark.event_log import listener
from exactum.spark.live import RunningSource
from exactum.spark.query import RETAINED, RETAINED_DEFAULT, Run
from exactum.spark.run.delivery import DeliverySettings, Targets
from exactum.spark.run.opening import open_run
from exactum.spark.write.failure import TaskFailed


@dataclass
class ServerFunction:
    """A query's function for ``foreachBatch``. Pickled on the client; the server has a process of
    its own for each run, in which this is unpickled once.
    """

    targets: Targets
    guarantee: Guarantee
    places: Places
    on_event: events.Listener | None
    checkpoint: str
    folder: Path
    sources: tuple[RunningSource, ...]
    decodings: tuple[DecodingPlan, ...]
    _batches: Batches | None = field(default=None, init=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """
        Raises:
            TaskFailed: an error of exactum's, as text that the client reads again.
        """
        try:
            if self._batches is None:
                self._batches = self._opened(frame, batch_id)
            self._batches(frame, batch_id)
        except ExactumError as error:
            raise TaskFailed.carrying(error) from None

    def _opened(self, frame: DataFrame, batch_id: int) -> Batches:
        settings = DeliverySettings(
            self.targets, self.guarantee, self.places, (), listener(self.on_event)
        )
        run = self._run(frame, batch_id, settings)
        engine = Connect(f"exactum-{run.run_id}", self.decodings)
        batches = Batches(settings, partial(engine.interrupt, frame.sparkSession))
        try:
            batches.open(open_run(run, frame, settings, engine))
        except BaseException as error:
            batches.refuse(error)
            raise
        return batches

    def _run(self, frame: DataFrame, batch_id: int, settings: DeliverySettings) -> Run:
        session = frame.sparkSession
        query_id = query_id_of(self.folder)
        found = next((q for q in session.streams.active if str(q.id) == query_id), None)
        if found is None:
            raise _out_of_sight(self.folder, f"it is that of query {query_id}")
        plain: Any = session
        return Run(
            query_id=query_id,
            run_id=str(found.runId),
            name=found.name,
            checkpoint=self.checkpoint,
            execution_class="",  # Spark refuses for foreachBatch what could not be kept
            trigger="",
            master=str(plain.conf.get("spark.master", "")),
            retained=int(str(plain.conf.get(RETAINED, RETAINED_DEFAULT))),
            first_batch_id=batch_id,
            guarantee=self.guarantee,
            session=session,
            emit=settings.emit,
            staging=self.places.staging,
            live=ConnectRun(session, str(found.runId), self.folder, self.sources),
        )


def query_id_of(folder: Path) -> str:
    """
    Raises:
        SettingRefused: this process, beside Spark's server, does not see the checkpoint.
    """
    try:
        return str(json.loads((folder / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise _out_of_sight(folder, str(error)) from error


def _out_of_sight(folder: Path, why: str) -> SettingRefused:
    return SettingRefused(
        "CONNECT_CHECKPOINT",
        f"The process beside Spark's server does not find this query in {folder / 'metadata'}: "
        f"{why}. Over Spark Connect the checkpoint has to be a folder that the server and the "
        "process beside it see under this path. Nothing was written.",
    )
