"""The job under test, run as a process of its own by ``jobs.Job``, also below spark-submit: queries of
exactum's, with a death planned for each.

Its one argument is a JSON object: ``session`` (master, conf), ``specs``, and ``at_once``, how many of
them run at a time in that session. ``specs`` are a list, or a folder in which they appear one after
another (``0.json``, ``1.json`` ...) until the process ends that started this one. A spec is one query:

    query       the function that makes it of the session and the spec (see ``queries``), as
                "module:function"
    folder      takes its events and its result; a file ``stop`` in it stops the query
    checkpoint
    faults      the fields of ``deaths.Fault``, of each
    log         the URL of a database for the decisions
    drain       whether it ends when all is read, which is so unless it says otherwise
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum.checkpoint.layout import DECISIONS
from exactum.errors import ExactumError
from exactum.events import Event
from exactum.files.slot_log import SlotLog
from exactum.storage.folder import Folder
from tests.kit.crash.deaths import Fault, Faults, FaultyLog, FaultySink
from tests.kit.crash.queries import Query, Spec
from tests.kit.spark.each_batch import around_each_batch

POLL_S = 0.05
SUBMITTED = "PYSPARK_GATEWAY_PORT" in os.environ
"""Below spark-submit, which was given what the session needs."""


def start(spark: SparkSession, spec: Spec) -> StreamingQuery:
    folder, checkpoint = Path(spec["folder"]), spec["checkpoint"]
    planned = [Fault(**fault) for fault in spec.get("faults", ())]
    faults = Faults([dataclasses.replace(f, folder=f.folder or spec["folder"]) for f in planned])

    def on_event(event: Event) -> None:
        with (folder / "events").open("a") as file:
            line = {"event": type(event).__name__, **dataclasses.asdict(event)}
            file.write(json.dumps(line) + "\n")

    def log() -> SlotLog:
        query_id = json.loads(Path(checkpoint, "metadata").read_text())["id"]
        if "log" in spec:
            from exactum.sql.files import open_files

            return SlotLog(open_files(spec["log"], query_id), query_id)
        return SlotLog(Folder(Path(checkpoint, DECISIONS)), query_id)

    module, _, name = spec["query"].partition(":")
    query: Query = getattr(import_module(module), name)(spark, spec)
    settings = {"decision_log": FaultyLog(log, faults), **query.settings}
    sinks = [FaultySink(sink, faults) for sink in query.sinks] if faults.planned else query.sinks
    exact = exactum.exactly_once(*sinks, on_event=on_event, **settings)
    around_each_batch(lambda write, frame, batch_id: faults.around("batch", write))
    drains = spec.get("drain", True)
    trigger: Any = {"availableNow": True} if drains else {"processingTime": "0 seconds"}
    writer = query.frame.writeStream.outputMode(query.mode).trigger(**trigger)
    return exact.start(writer, checkpoint=checkpoint)


def run(spark: SparkSession, spec: Spec) -> None:
    folder = Path(spec["folder"])
    result: dict[str, Any] = {"outcome": "finished"}
    try:
        query = start(spark, spec)
        while not query.awaitTermination(POLL_S):
            if (folder / "stop").exists():
                query.stop()
                result["outcome"] = "stopped"
    except Exception as error:
        own = type(error).__name__ if isinstance(error, ExactumError) else ""
        result = {"outcome": "failed", "error": own, "message": str(error)}
    (folder / "result.tmp").write_text(json.dumps(result))
    (folder / "result.tmp").rename(folder / "result")


def appearing(inbox: Path) -> Iterator[Spec]:
    owner = os.getppid()
    (inbox / "ready").touch()
    for number in itertools.count():
        path = inbox / f"{number}.json"
        while not path.exists():
            if os.getppid() != owner:
                os._exit(1)  # whatever still runs
            time.sleep(POLL_S)
        yield json.loads(path.read_text())


def session(settings: dict[str, Any]) -> SparkSession:
    if SUBMITTED:
        return SparkSession.builder.appName("crash").getOrCreate()
    return exactum.local_session("crash", **settings)


def main(argument: str) -> None:
    if os.getsid(0) != os.getpid() and not SUBMITTED:
        os.setsid()  # below strace: a death is that of this session
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("exactum").setLevel(logging.DEBUG)
    play = json.loads(argument)
    spark = session(play["session"])
    specs = play["specs"]
    with ThreadPoolExecutor(play["at_once"]) as lives:
        list(
            lives.map(
                partial(run, spark), specs if isinstance(specs, list) else appearing(Path(specs))
            )
        )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
