"""What a client of Spark Connect refuses before anything is sent: it needs no server. What a server
refuses is played on real ones (tests/smoke/queries.py).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

import exactum
from exactum.errors import SettingRefused
from exactum.protocol.model import SourceOffsets
from exactum.protocol.sink import Guarantee
from exactum.spark.connect.server import ConnectJob, query_id_of
from exactum.spark.connect.start import _in_our_words
from exactum.spark.query import Batch
from exactum.spark.run.committed_epochs import ON_DIFFERENCE, CommittedEpochs
from exactum.spark.settings import FORMAT
from exactum.spark.supervised import process
from exactum.testing import MemoryDecisionLog, MemoryStorage
from tests.kit.errors import check_error, raised
from tests.kit.spark.run_at import run_at

KAFKA = exactum.KafkaSink("out", bootstrap_servers="localhost:9092")
AHEAD = exactum.WriteAheadSink(print, rows=exactum.Rows(where="v > 1"))
CONTROL = exactum.control_stream("rules", bootstrap_servers="localhost:9092", value=int)
LOG = MemoryDecisionLog(MemoryStorage(), "query")
HERE = "/data/orders"
ASYNC = "asyncProgressTrackingEnabled"


class Writer:
    """As much of Spark Connect's own as is read here: its package wants gRPC, which not every
    environment has. ``given``: fields of its message (spark/connect/commands.proto).
    """

    __module__ = "pyspark.sql.connect.streaming.readwriter"

    def __init__(self, trigger: str | None = None, **given: Any) -> None:
        self._write_proto = SimpleNamespace(
            HasField=lambda name: name in given,
            WhichOneof=lambda name: trigger,
            format=given.get("format", ""),
            query_name=given.get("query_name", ""),
            options=given.get("options", {}),
        )


def start(writer: Writer, checkpoint: str = HERE, *sinks: Any, **settings: Any) -> None:
    given: Any = writer
    exactum.exactly_once(*sinks or (KAFKA,), **settings).start(given, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("checkpoint", "sinks", "settings", "fact"),
    [
        ("orders", (), {}, "checkpoint='orders'"),
        ("s3://bucket/orders", (), {}, "checkpoint='s3://bucket/orders'"),
        (HERE, (), {"control": CONTROL}, "control="),
        (HERE, (), {"decision_log": LOG}, "decision_log="),
        (HERE, (KAFKA, AHEAD), {}, repr(AHEAD)),
    ],
    ids=["relative", "no_folder", "control", "log", "rows"],
)
def test_what_cannot_be_had(
    checkpoint: str, sinks: tuple[Any, ...], settings: dict[str, Any], fact: str
) -> None:
    with raised(SettingRefused, "SPARK_CONNECT", fact, "docs/connect.md"):
        start(Writer(), checkpoint, *sinks, **settings)


def test_a_supervised_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "current", object)
    with raised(SettingRefused, "SPARK_CONNECT", "exactum run"):
        start(Writer())


@pytest.mark.parametrize(
    ("writer", "facts"),
    [
        (Writer("continuous_checkpoint_interval"), ["continuous_checkpoint_interval"]),
        (Writer("real_time_batch_duration"), ["real_time_batch_duration"]),
        (Writer("once", options={ASYNC.lower(): "TRUE"}), [f"{ASYNC.lower()}=TRUE"]),
    ],
    ids=["continuous", "real_time", "async"],
)
def test_unsafe_triggers(writer: Writer, facts: list[str]) -> None:
    """Whatever Spark's own checks are set to: the server's process is not told of them."""
    with raised(SettingRefused, "TRIGGER_UNSAFE", *facts):
        start(writer)


@pytest.mark.parametrize("trigger", [None, "processing_time_interval", "available_now", "once"])
def test_what_is_no_unsafe_trigger(trigger: str | None) -> None:
    """The writer is asked for its plan, which this one has not."""
    with pytest.raises(AttributeError, match="_write_stream"):
        start(Writer(trigger, options={ASYNC: "false"}))


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"foreach_batch": True}, "foreachBatch"),
        ({"format": "kafka"}, "format"),
        ({"query_name": "orders"}, "queryName"),
        ({"options": {"checkpointlocation": HERE}}, "checkpointLocation"),
        ({"options": {"path": HERE}}, "path"),
    ],
    ids=["function", "format", "name", "checkpoint", "path"],
)
def test_a_writer_that_has_it_already(given: dict[str, Any], fact: str) -> None:
    with raised(SettingRefused, "START_ARGUMENT", fact):
        start(Writer(**given))


def test_what_is_given_to_foreach_batch() -> None:
    """It is pickled there for the server: the error says what to write instead."""
    once = exactum.exactly_once(KAFKA)
    pickled: Any = cloudpickle
    with raised(SettingRefused, "START_WANTED", "exactum.exactly_once(", "start("):
        pickled.dumps(once)
    with raised(SettingRefused, "SPARK_CONNECT", "start()"):
        pickled.dumps(once.for_each_batch(checkpoint=HERE))


def test_state_in_format_1(tmp_path: Path) -> None:
    """There a snapshot of a failed attempt may come back, and no comparison of rows sees that. A
    query has state where Spark has put some into the checkpoint.
    """

    def writes(guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **conf: str) -> None:
        run = run_at(tmp_path, guarantee=guarantee, session=SimpleNamespace(conf=conf))
        epochs = CommittedEpochs(run, (), partial(ConnectJob, tag="run"))
        epochs.writing(Batch(0, SourceOffsets((), ()), first=True))

    writes()
    (tmp_path / "state" / "0").mkdir(parents=True)
    with raised(SettingRefused, "STATE_FORMAT", "new checkpoint", f"{FORMAT}=2", ON_DIFFERENCE):
        writes()
    writes(**{FORMAT: "2"})
    writes(**{ON_DIFFERENCE: "warn"})
    writes(Guarantee.AT_LEAST_ONCE)


def test_a_server_without_exactum_or_checkpoint(tmp_path: Path) -> None:
    """The one as the client reads it, the other as the process beside the server finds it."""
    said = _in_our_words(RuntimeError("ModuleNotFoundError: No module named 'exactum'"))
    check_error(said, SettingRefused, "CONNECT_PACKAGE", exactum.__version__)
    with raised(SettingRefused, "CONNECT_CHECKPOINT", tmp_path / "metadata"):
        query_id_of(tmp_path)
