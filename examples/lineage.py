"""OpenLineage: a run of a query is a run of its job, with the topics it reads and what it writes.

    outputs = {"kafka:totals": ("kafka://broker:9092", "totals")}
    exactum.exactly_once(sink, on_event=Lineage(OpenLineageClient(), "shop", outputs))

Spark's own integration sees a micro-batch without its topic and a sink without a name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import error_message_run, output_statistics_output_dataset

from exactum.events import EpochCompleted, Event, RunEnded, RunStarted

RUNNING_EVERY_S = 60.0


class Lineage:
    """A listener for one query. ``outputs``: namespace and name of each sink, by the sink's name.

    The events go out by a thread of their own: a listener must not block.
    """

    def __init__(
        self, client: OpenLineageClient, namespace: str, outputs: Mapping[str, tuple[str, str]]
    ) -> None:
        self._client, self._namespace, self._outputs = client, namespace, outputs
        self._sender = ThreadPoolExecutor(1, "lineage")
        self._run: RunStarted | None = None
        self._rows: Counter[str] = Counter()
        self._reported_s = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._run = event
            self._emit(RunState.START)
        elif isinstance(event, EpochCompleted):
            self._rows.update(event.rows_by_sink)
            if time.monotonic() - self._reported_s >= RUNNING_EVERY_S:
                self._emit(RunState.RUNNING)
        elif isinstance(event, RunEnded) and event.error:
            message = f"{event.error}: {event.reason}"
            facet = error_message_run.ErrorMessageRunFacet(message, "PYTHON")
            self._emit(RunState.FAIL, {"errorMessage": facet})
        elif isinstance(event, RunEnded):
            self._emit(RunState.ABORT if event.reason else RunState.COMPLETE)

    def _emit(self, state: RunState, facets: dict[str, Any] | None = None) -> None:
        run = self._run
        if run is None:
            return
        self._reported_s = time.monotonic()
        rows, self._rows = self._rows, Counter()
        of_rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        told = RunEvent(
            eventTime=datetime.now(timezone.utc).isoformat(),
            eventType=state,
            run=Run(run.run_id, facets=facets or {}),
            job=Job(self._namespace, run.name or run.query_id),
            producer="exactum",
            inputs=[
                InputDataset(f"kafka://{servers.split(',')[0]}", topic)
                for topic, servers in run.inputs.items()
            ],
            outputs=[
                OutputDataset(
                    namespace, name, outputFacets={"outputStatistics": of_rows(rowCount=rows[sink])}
                )
                for sink, (namespace, name) in self._outputs.items()
            ],
        )
        self._sender.submit(self._client.emit, told)
