"""What is refused, by Spark or by exactum, and what the user reads then."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from exactum import errors, events
from exactum.checkpoint.query_place import open_log
from exactum.protocol.sink import Guarantee
from exactum.spark.connect.decodings import DecodingPlan, PlainReads
from exactum.spark.connect.server import ConnectJob, ConnectRun
from exactum.spark.live import RunningSource
from exactum.spark.run.refusals import refuse_repeated_stages, refuse_unsafe
from tests.kit.errors import check_query_error, raised
from tests.kit.spark.folder_sink import arm, await_struck
from tests.kit.spark.run_at import run_at

pytestmark = pytest.mark.spark


def test_async_progress_tracking(query: Any) -> None:
    """Spark itself refuses it for foreachBatch, at start; with Spark's check switched off,
    exactum does.
    """
    frame = query.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def start(**options: str) -> Any:
        writer = frame.writeStream.options(**options)
        return query.exactly_once().start(writer, checkpoint=query.checkpoint)

    with pytest.raises(PySparkException, match="does not support async progress tracking"):
        start(asyncProgressTrackingEnabled="true")
    option = "asyncProgressTrackingEnabled"
    with raised(errors.SettingRefused, "TRIGGER_UNSAFE", option):
        start(
            asyncProgressTrackingEnabled="true",
            _asyncProgressTrackingOverrideSinkSupportCheck="true",
        )
    assert not query.spark.streams.active
    assert query.values() == []


def test_at_most_once_on_a_cluster_asks_the_application(spark: SparkSession) -> None:
    """A session that was there already has the setting, and Spark's scheduler has not."""
    key = "spark.stage.maxConsecutiveAttempts"
    session = SimpleNamespace(conf={key: "1"}, sparkContext=spark.sparkContext)
    facts: dict[str, Any] = {"session": session, "guarantee": Guarantee.AT_MOST_ONCE}
    refuse_repeated_stages(run_at("checkpoint", **facts))
    with raised(errors.SettingRefused, "AT_MOST_ONCE_CLUSTER", f"{key}=1"):
        refuse_repeated_stages(run_at("checkpoint", master="spark://host:7077", **facts))


@pytest.mark.parametrize("trigger", ["ContinuousTrigger(1000)", "RealTimeTrigger(300000)"])
def test_unsafe_triggers_whose_check_in_spark_is_off(trigger: str) -> None:
    """exactum refuses them as well, whatever Spark's own checks are set to."""
    with raised(errors.SettingRefused, "TRIGGER_UNSAFE", trigger):
        refuse_unsafe(run_at("/data/orders", trigger=trigger))


def test_outside_of_a_query(query: Any) -> None:
    """Called with a frame that is no micro-batch: says where it belongs."""
    with raised(errors.SettingRefused, "CALL_OUTSIDE", "foreachBatch"):
        query.exactly_once().for_each_batch(checkpoint="/x")(query.spark.range(1), 0)


def test_dead_letters_beside_a_view_over_spark_connect(tmp_path: Path) -> None:
    """A view's source is not among those that the client names: nobody can tell which offsets are
    those of the records that are decoded.
    """
    (tmp_path / "offsets").mkdir()
    logged = ("v1", "{}", '{"clicks":{"0":7}}', '{"orders":{"0":7}}')
    (tmp_path / "offsets" / "0").write_text("\n".join(logged))
    orders = RunningSource(0, 0, "kafkatable", {"subscribe": "orders"}, "sources/0")
    no_session: Any = None
    run = run_at(tmp_path, live=ConnectRun(no_session, "run", tmp_path, [orders]))
    jobs = partial(ConnectJob, tag="run")
    with raised(errors.SettingRefused, "SPARK_CONNECT", str(tmp_path), "view"):
        PlainReads(run, (DecodingPlan(0, b""),), jobs)
    assert not PlainReads(run, (), jobs).wants_dead_letters


def test_two_columns_of_one_name(query: Any) -> None:
    """Nobody can tell which one is meant."""
    query.give(1)
    text = query.run(query.exactly_once(), transform=lambda frame: frame.selectExpr("v", "k AS v"))
    check_query_error(text, errors.FrameRefused, "COLUMN_TWICE", "named v")


def test_one_object_in_two_running_queries(query: Any, tmp_path: Path) -> None:
    """One object serves one query at a time; the second is refused and the first goes on, in the
    middle of an epoch.
    """
    once = query.exactly_once()
    query.give(1)
    first = query.start(once, processingTime="0 seconds")
    first.processAllAvailable()
    arm(query.out, "write", kind="held")
    query.give(2)
    await_struck(query.out)
    query.checkpoint = tmp_path / "second"
    with raised(errors.SettingRefused, "OBJECT_SHARED", first.id):
        query.start(once)
    (query.out / "released").touch()
    first.processAllAvailable()
    assert not (query.out / "closed").exists()
    assert first.exception() is None
    first.stop()
    assert query.values() == [1, 2]
    assert len({e.incarnation for e in query.seen(events.EpochCompleted)}) == 1


def test_a_decision_log_that_does_not_fit(tmp_path: Path) -> None:
    """An unknown scheme is refused by name, without its secrets; a remote checkpoint needs a log
    of its own.
    """
    with raised(errors.SettingRefused, "DECISION_LOG_ARGUMENT", "decision_log='hdfs://namenode/x'"):
        open_log(run_at("/data/orders"), "hdfs://namenode/x")
    with raised(
        errors.SettingRefused, "DECISION_LOG_ARGUMENT", "decision_log='oracle://db/x'"
    ) as refused:
        open_log(run_at("/data/orders"), "oracle://scott:tiger@db/x?password=tiger")
    assert "tiger" not in str(refused.value)
    with raised(errors.CheckpointRefused, "DECISION_LOG_WANTED", "decision_log="):
        open_log(run_at("hdfs://node/checkpoints/orders"), None)
    assert open_log(run_at("hdfs://node/checkpoints/orders"), tmp_path) is not None


def test_a_checkpoint_with_the_metadata_of_another_query(query: Any, tmp_path: Path) -> None:
    """Under another identity no decision would be found, wherever the decisions are kept:
    nothing is written.
    """
    decisions = str(tmp_path / "decisions")
    query.give(1)
    assert query.run(query.exactly_once(decision_log=decisions)) is None
    query.forget_last_commit()
    (query.checkpoint / "metadata").write_text(
        json.dumps({"id": "00000000-0000-4000-8000-000000000000"})
    )
    (query.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    text = query.run(query.exactly_once(decision_log=decisions))
    other = "00000000-0000-4000-8000-000000000000"
    check_query_error(text, errors.CheckpointRefused, "CHECKPOINT_OTHER_QUERY", other)
    assert query.values() == [1]
