"""The recipes of docs/metrics.md on a real query from Kafka into Kafka and files: what
OpenTelemetry and OpenLineage are told of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lineage import Lineage
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpConfig, HttpTransport
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pyspark.sql import SparkSession
from traces import EpochTraces

import exactum
from exactum.events import Event, Listener
from exactum.local import LocalKafka
from tests.kit.kafka.broker import Broker
from tests.kit.serving import serving
from tests.kit.targets.api import Api
from tests.kit.waiting import WAIT_MAX_S, await_true

AWAY = "http://127.0.0.1:9"
"""Nobody listens there."""


def test_what_they_are_told(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A trace for each micro-batch with a span for each phase and sink, within its times; START
    with inputs and outputs by name, COMPLETE with the rows, FAIL with the error. A receiver that is
    away stops nobody.
    """
    source, out = topic("in", partitions=2), topic("out")
    servers = kafka.bootstrap_servers
    Broker(kafka).produce(source, *map(str, range(10)))
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def run(name: str, *listeners: Listener, fails: bool = False) -> None:
        frame = exactum.read_kafka(spark, source, bootstrap_servers=servers, start="earliest")
        chosen = frame.selectExpr("key", "CAST(value AS STRING) AS value")
        if fails:
            chosen = chosen.selectExpr("key", "CAST(raise_error(value) AS STRING) AS value")
        sinks = (
            exactum.KafkaSink(out, bootstrap_servers=servers),
            exactum.FileSink(str(tmp_path / "files"), rows=lambda frame: frame.select("value")),
        )

        def tell_all(event: Event) -> None:
            for listener in listeners:
                listener(event)

        query = exactum.exactly_once(*sinks, on_event=tell_all).start(
            chosen.writeStream.trigger(availableNow=True), checkpoint=tmp_path / name, name=name
        )
        try:
            query.awaitTermination(WAIT_MAX_S)
        except Exception:
            assert fails, "only the query that is made to fail does"

    def lineage(url: str) -> Lineage:
        settings = {"type": "http", "url": url, "timeout": 0.2 if url == AWAY else 5.0}
        client = OpenLineageClient(transport=HttpTransport(HttpConfig.from_dict(settings)))
        outputs = {
            f"kafka:{out}": (f"kafka://{servers}", out),
            f"files:{tmp_path / 'files'}": ("file", str(tmp_path / "files")),
        }
        return Lineage(client, "shop", outputs)

    with serving(Api()) as receiver:
        for name, fails in (("copying", False), ("failing", True)):
            traces = EpochTraces(provider.get_tracer("shop"))
            run(name, traces, lineage(receiver.url), lineage(AWAY), fails=fails)
        ends = {"COMPLETE", "FAIL"}  # of a query that ends well, a moment after it has ended
        await_true(
            lambda: ends <= {event["eventType"] for _, event in receiver.received}, "both ends"
        )
    check_traces(exporter.get_finished_spans(), out)
    check_lineage([event for _, event in receiver.received], servers, source, out, tmp_path)


def check_traces(spans: Any, out: str) -> None:
    by_name = {span.name: span for span in spans}
    epochs = [span for span in spans if span.name == "exactum.epoch"]
    done = [span for span in epochs if span.status.status_code is not StatusCode.ERROR]
    assert len(done) == 1
    root = done[0]
    assert root.parent is None
    assert root.attributes["exactum.query"] == "copying"
    assert root.attributes["exactum.rows"] == 20
    own = [span for span in spans if span.context.trace_id == root.context.trace_id]
    names = {span.name for span in own}
    wanted = {"write", "verify", "decide", "commit", f"commit kafka:{out}", f"verify kafka:{out}"}
    assert wanted <= names, names
    commit = by_name[f"commit kafka:{out}"]
    assert [s.name for s in own if s.context.span_id == commit.parent.span_id] == ["commit"]
    assert commit.attributes["exactum.rows"] == 10
    assert all(root.start_time <= s.start_time <= s.end_time <= root.end_time for s in own)
    failed = [span for span in epochs if span not in done]
    assert failed, "the epoch that was abandoned has a trace, too"
    assert all(span.status.description for span in failed)


def check_lineage(
    events: list[dict[str, Any]], servers: str, source: str, out: str, folder: Path
) -> None:
    def of(name: str) -> list[dict[str, Any]]:
        return [event for event in events if event["job"]["name"] == name]

    copying = of("copying")
    assert [event["eventType"] for event in copying] == ["START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in copying}) == 1
    last = copying[-1]
    assert last["job"]["namespace"] == "shop"
    namespace = f"kafka://{servers}"
    assert [(d["namespace"], d["name"]) for d in last["inputs"]] == [(namespace, source)]
    outputs = {(d["namespace"], d["name"]): d["outputFacets"] for d in last["outputs"]}
    assert set(outputs) == {(namespace, out), ("file", str(folder / "files"))}
    assert {f["outputStatistics"]["rowCount"] for f in outputs.values()} == {10}
    failing = of("failing")
    assert failing[-1]["eventType"] == "FAIL"
    assert "errorMessage" in failing[-1]["run"]["facets"]
