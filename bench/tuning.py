"""The tunings of exactum, each with how to take it out: a patch of the driver, a setting of the
session, or a word to ``bench.tuned_daemon``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from unittest import mock

import exactum

DAEMON = "spark.python.daemon.module"
OURS = "bench.tuned_daemon"


@dataclass(frozen=True)
class Tuning:
    """``of``: what it makes shorter, ``epoch``, ``drain`` or ``start``. ``out`` takes it out of a
    driver, ``settings`` of the session or ``in_daemon`` out of a driver's whole life. ``views``: it
    needs a query with two views, and a driver that has gone without it once does so for good.
    ``begun`` is called when its driver begins.
    """

    name: str
    of: str
    room: str
    out: Callable[[], AbstractContextManager[object]] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    in_daemon: bool = False
    views: bool = False
    begun: Callable[[], None] = lambda: None

    @property
    def switchable(self) -> bool:
        """Whether a driver that runs can go without it for some epochs."""
        return self.out is not None and not self.views and self.of == "epoch"


def _patch(target: str, value: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch(f"exactum.spark.{target}", value)


def _collected(frame: object) -> list[str]:
    from exactum.spark.jvm.collecting import collected

    return collected(frame)  # type: ignore[arg-type]


def _onlookers() -> None:
    """All that may look on at once: metrics, the web server, traces that are exported to nobody."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    exactum.serve_metrics(port=0)
    exactum.trace_epochs(provider)


def _nobody_looks_on() -> AbstractContextManager[object]:
    return mock.patch("exactum.monitor.recorder.Recorder.put", return_value=None)


TUNINGS = (
    Tuning(
        "small epochs in fewer tasks",
        "epoch",
        "run/small_epoch.py",
        _patch("run.small_epoch.PARTITIONS_PER_TASK", 1),
    ),
    Tuning(
        "a brief collect",
        "epoch",
        "jvm/collecting.py",
        _patch("jvm.collecting.collected_briefly", _collected),
    ),
    Tuning(
        "views side by side",
        "epoch",
        "write/view_plan.py",
        _patch("write.view_jobs.side_by_side", lambda frames: None),
        views=True,
    ),
    Tuning("ready producers", "epoch", "kafka/producer/producer_pool.py", in_daemon=True),
    Tuning("frozen modules", "epoch", "startup/daemon.py", in_daemon=True),
    Tuning(
        "Unix sockets to workers",
        "epoch",
        "runtime/sockets.py",
        settings={"spark.python.unix.domain.socket.enabled": "false"},
    ),
    Tuning(
        "checkpoints without processes",
        "epoch",
        "runtime/CheckpointFs.java",
        settings={
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs"
        },
    ),
    Tuning("prefetch", "drain", "write/prefetch.py", in_daemon=True),
    Tuning(
        "Kafka in columns",
        "drain",
        "runtime/ColumnarKafka.java",
        settings={"spark.exactum.columnarKafka.enabled": "false"},
    ),
    Tuning("imports of the daemon", "start", "startup/daemon.py", in_daemon=True),
    Tuning(
        "workers started early",
        "start",
        "startup/warm_up.py",
        settings={"spark.exactum.warmWorkers": "false"},
    ),
    Tuning(
        "the driver's class archive",
        "start",
        "java/class_archive.py",
        settings={"spark.driver.defaultJavaOptions": "-Xlog:cds*=off"},
    ),
    *(
        Tuning(
            f"onlookers, by {of}",
            of,
            "monitor/",
            _nobody_looks_on,
            begun=_onlookers,
        )
        for of in ("epoch", "drain")
    ),
)
"""Those that make something shorter, what a promise needs is none of them; and the onlookers, who
must cost next to nothing.
"""
