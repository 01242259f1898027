"""OpenLineage: what a query reads and where it writes, exactly. Needs ``exactum[lineage]``.

``foreachBatch`` hides both from Spark's own integration: it sees a batch without its topic, or a
sink without a name. Here inputs come from the query's sources and outputs from its sinks.

A run of a query is a run of its job: START, then RUNNING with the rows since the last one, at most
once a minute, then COMPLETE where it was stopped and FAIL with the error where it failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from exactum._version import __version__
from exactum.checkpoint.known_sinks import KnownSink, read_known_sinks
from exactum.checkpoint.offset_log import local_folder
from exactum.errors import SettingRefused
from exactum.monitor.fact import Fact
from exactum.monitor.recorder import RECORDER
from exactum.packages import HERE, not_installed

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

MISSING = not_installed("Lineage needs", "openlineage-python", "lineage", HERE)
PRODUCER = f"exactum/{__version__}"
RUNNING_EVERY_MS = 60_000
Dataset = tuple[str, str]
"""(namespace, name), as OpenLineage's naming has them."""


class Lineage:
    """Made by ``exactum.emit_lineage``."""

    def __init__(self, client: OpenLineageClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._runs: dict[str, _LineageRun] = {}

    def __str__(self) -> str:
        return "lineage could not be emitted"

    def close(self) -> None:
        """Emit no more. Idempotent."""
        RECORDER.remove(self)

    def take(self, facts: Sequence[Fact]) -> None:
        """See ``recorder.Outlet``. Raises what the client's transport raises, and ValueError at the
        end where OpenLineage does not take a run, such as one whose id is no UUID.
        """
        refused: ValueError | None = None
        for fact in facts:
            try:
                self._tell(fact)
            except ValueError as error:  # of this one; the others are told
                self._runs.pop(fact.query_id, None)
                refused = refused or error
        if refused is not None:
            raise refused

    def _tell(self, fact: Fact) -> None:
        if fact.name == "RunStarted":
            self._runs[fact.query_id] = _LineageRun(fact)
            self._emit("START", self._runs[fact.query_id], fact)
            return
        run = self._runs.get(fact.query_id)
        if run is None:
            return
        if fact.name == "EpochCompleted":
            run.rows.update(fact.fields["rows_by_sink"])
            if fact.at_ms - run.told_ms >= RUNNING_EVERY_MS:
                self._emit("RUNNING", run, fact)
        elif fact.name == "RunEnded" and fact.fields["incarnation"] == run.incarnation:
            del self._runs[fact.query_id]
            failed = bool(fact.fields["error"])
            self._emit("FAIL" if failed else "COMPLETE", run, fact)

    def _emit(self, kind: str, run: _LineageRun, fact: Fact) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent
        from openlineage.client.event_v2 import RunState as State
        from openlineage.client.facet_v2 import (
            error_message_run,
            job_type_job,
            output_statistics_output_dataset,
        )

        run.told_ms = fact.at_ms
        rows, run.rows = run.rows, Counter()
        outputs = [
            OutputDataset(
                namespace,
                name,
                outputFacets={
                    "outputStatistics": (
                        output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                            rowCount=rows[sink], producer=PRODUCER
                        )
                    )
                },
            )
            for sink, (namespace, name) in run.outputs.items()
        ]
        facets: dict[str, Any] = {}
        if kind == "FAIL":
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=f"{fact.fields['error']}: {fact.fields['reason']}",
                programmingLanguage="PYTHON",
                producer=PRODUCER,
            )
        job = Job(
            self._namespace,
            run.name,
            facets={
                "jobType": job_type_job.JobTypeJobFacet(
                    processingType="STREAMING",
                    integration="EXACTUM",
                    jobType="QUERY",
                    producer=PRODUCER,
                )
            },
        )
        self._client.emit(
            RunEvent(
                eventTime=datetime.fromtimestamp(fact.at_ms / 1000, timezone.utc).isoformat(),
                eventType=State[kind],
                run=Run(run.run_id, facets=facets),
                job=job,
                producer=PRODUCER,
                inputs=[InputDataset(namespace, name) for namespace, name in run.inputs],
                outputs=outputs,
            )
        )


class _LineageRun:
    """One run of a query: its inputs and outputs, and the rows that were not told of yet."""

    def __init__(self, started: Fact) -> None:
        of = started.fields
        self.name = str(of["name"] or started.query_id)
        self.run_id = str(of["run_id"])
        self.incarnation = of["incarnation"]
        self.inputs = inputs_of(of["inputs"])
        self.outputs = outputs_of(str(of["checkpoint"]))
        self.rows: Counter[str] = Counter()
        self.told_ms = started.at_ms


def inputs_of(inputs: Mapping[str, str]) -> list[Dataset]:
    """Topics; ``inputs`` is that of ``RunStarted``."""
    return [(kafka_namespace(servers), topic) for topic, servers in inputs.items()]


def outputs_of(checkpoint: str) -> dict[str, Dataset]:
    """The present sinks that the checkpoint has on file, by name; none where it has nothing."""
    folder = local_folder(checkpoint)
    known = None if folder is None else read_known_sinks(Path(folder))
    if known is None:
        return {}
    return {sink.name: dataset_of(sink) for sink in known.sinks if sink.name in known.present}


def dataset_of(sink: KnownSink) -> Dataset:
    """By OpenLineage's naming of Kafka, PostgreSQL, MySQL, files and object stores; a target of a
    user's own is ``exactum://`` with its class.
    """
    where = sink.where
    kind = where.get("kind", "")
    if kind == "kafka":
        return kafka_namespace(where["bootstrap.servers"]), where["topic"] or "*"
    if kind in ("postgres", "mysql"):
        parts = urlsplit(where["url"])
        host = parts.netloc.rpartition("@")[2]
        database = parts.path.strip("/")
        table = where["table"]
        if kind == "postgres" and "." not in table:
            table = f"public.{table}"
        return f"{kind}://{host}", f"{database}.{table}"
    if kind == "files":
        parts = urlsplit(where["path"])
        if parts.scheme in ("", "file"):
            return "file", parts.path
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"
    return f"exactum://{where.get('class', kind or 'sink')}", sink.name


def kafka_namespace(servers: str) -> str:
    """``kafka://`` with the first bootstrap server."""
    return f"kafka://{servers.split(',')[0].strip()}"


def emit_lineage(client: OpenLineageClient | None = None, namespace: str = "default") -> Lineage:
    """Emit OpenLineage events of this process's queries from now on.

    Events are START, RUNNING (at most one a minute, with the rows of each output since the last),
    COMPLETE and FAIL. The job's name is the query's name, or its id where it has none; the run's id
    is Spark's run id. It works off the queries' path.

    Args:
        client: whom they go to; default one that OpenLineage's own configuration
            (``OPENLINEAGE_URL``, ``openlineage.yml``) describes.
        namespace: of the job.

    Returns:
        An object with ``close()``, which ends it.

    Raises:
        SettingRefused: ``exactum[lineage]`` is not installed.
    """
    try:
        from openlineage.client import OpenLineageClient as Client
    except ImportError as error:
        raise SettingRefused(MISSING) from error
    lineage = Lineage(Client() if client is None else client, namespace)
    RECORDER.add(lineage)
    return lineage
