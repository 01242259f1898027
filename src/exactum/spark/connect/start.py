"""The client's side of a query over Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pyspark import cloudpickle

from exactum._version import __version__
from exactum.checkpoint.offset_log import local_folder
from exactum.errors import ExactumError, SettingRefused
from exactum.spark.arguments import DeliverySettings
from exactum.spark.connect.decodings import decodings_in, sources_in
from exactum.spark.connect.server import STOP_ANSWERED, STOP_ASKED, ServerFunction
from exactum.spark.run.refusals import unsafe_trigger
from exactum.spark.streaming_query import Query, translated
from exactum.spark.supervised import process


def started(settings: DeliverySettings, writer: Any, checkpoint: str, name: str | None) -> Query:
    """See ``Delivery.start``. Sinks are opened with the first micro-batch.

    Raises:
        SettingRefused: it cannot run over Spark Connect.
        Exception: what Spark has raised of it.
    """
    folder = _checked(settings, checkpoint)
    if unsafe := _unsafe(writer):
        raise unsafe_trigger("The query", " and ".join(unsafe))
    plan = writer._write_stream.command(writer._session.client).write_stream_operation_start.input
    function = ServerFunction(settings, checkpoint, folder, sources_in(plan), decodings_in(plan))
    chosen = writer.option("checkpointLocation", checkpoint).foreachBatch(function)
    try:
        spark_query = (chosen if name is None else chosen.queryName(name)).start()
    except Exception as error:  # noqa: BLE001  (raised again, in our words)
        raise _in_our_words(error) from None
    there = Remote(spark_query, writer._session)
    return Query(spark_query, there, there)


_SAFE_TRIGGERS = None, "processing_time_interval", "available_now", "once"
_ASYNC = "asyncprogresstrackingenabled"


def _unsafe(writer: Any) -> list[str]:
    """What it has under which a batch may have other offsets after a crash
    (``WriteStreamOperationStart`` in spark/connect/commands.proto).
    """
    message = writer._write_proto
    trigger = message.WhichOneof("trigger")
    options = [(name, value) for name, value in message.options.items() if name.lower() == _ASYNC]
    found = [f"{name}={value}" for name, value in options if value.lower() != "false"]
    return found if trigger in _SAFE_TRIGGERS else [trigger, *found]


def _checked(settings: DeliverySettings, checkpoint: str) -> Path:
    """The checkpoint's folder, of a query that can run over Spark Connect."""
    if process.current() is not None:
        raise _refused("exactum run does not supervise queries over Spark Connect")
    folder = local_folder(checkpoint)
    if folder is None or not folder.is_absolute():
        raise _refused(
            f"checkpoint={checkpoint!r}: over Spark Connect it has to be the absolute path of a "
            "folder that the server's machine sees"
        )
    if settings.control:
        raise _refused("control= does not work over Spark Connect")
    if not isinstance(settings.places.decision_log, str | Path | None):
        raise _refused("decision_log= has to be a path or a URL over Spark Connect")
    sinks, pickled = settings.targets.sinks, cast("Any", cloudpickle)
    for sink, copy in zip(sinks, pickled.loads(pickled.dumps(sinks)), strict=True):
        if sink.rows is not None and copy.rows is None:
            raise _refused(f"{sink!r} leaves its rows= behind when it is pickled for the server")
    return folder


def _in_our_words(error: Exception) -> Exception:
    if "No module named 'exactum'" not in str(error):
        return translated(error)
    return SettingRefused(
        "CONNECT_PACKAGE",
        "The Python beside Spark's server, which calls exactum with each micro-batch, has no "
        f"exactum. Install it there: pip install exactum=={__version__}. Nothing was started.",
    )


def _refused(why: str) -> SettingRefused:
    return SettingRefused(
        "SPARK_CONNECT",
        f"{why}. See docs/connect.md, or use a classic session. Nothing was started.",
    )


class Remote:
    """The run as the client sees it: outcome and gate in one; see ``streaming_query.Query``."""

    error: ExactumError | None = None

    def __init__(self, spark_query: Any, session: Any) -> None:
        self._spark_query = spark_query
        self._conf = session.conf
        self._run_id = str(spark_query.runId)

    def shut(self) -> None:
        self._conf.set(f"{STOP_ASKED}{self._run_id}", "true")

    def between_epochs(self, log_timeout_s: float) -> bool:
        """Spark's trigger rests, or the function has answered that it begins no batch."""
        resting = not self._spark_query.status["isTriggerActive"]
        return resting or self._conf.get(f"{STOP_ANSWERED}{self._run_id}", "") == "true"

    def finish(self) -> None:
        for name in (STOP_ASKED, STOP_ANSWERED):
            self._conf.unset(f"{name}{self._run_id}")
