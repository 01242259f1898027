"""An ordinary PySpark script, Kafka in and Kafka out, that may be told to die: what ``exactum run``
keeps running.

Its one argument is a JSON object. ``death`` is a file that may say how one life is to die, the first
that finds it: ``{"event": "EpochDecided", "nth": 1}``. With ``noticed``, a file, it writes down which
queries it sees by all of Spark's means, and waits for the end of any. With ``dead``, a topic, its
records are JSON numbers, and bad ones go there. Where the file ``freeze`` exists when a micro-batch
is decided, the driver stops itself there (SIGSTOP), once the supervisor has heard of the decision.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def planned(death: Path) -> dict[str, Any]:
    """The death of this life, or none. Taken by a rename, so that no other life takes it as well."""
    taken = death.with_name(f"{death.name}.taken-{os.getpid()}")
    try:
        death.rename(taken)
    except FileNotFoundError:
        return {}
    return dict(json.loads(taken.read_text()))


play = json.loads(sys.argv[1])
death = planned(Path(play["death"]))

from pyspark.sql import SparkSession  # noqa: E402

import exactum  # noqa: E402  (a life may end before)
from exactum.spark.source import lag  # noqa: E402

seen = 0


def on_event(event: exactum.events.Event) -> None:
    global seen
    name = type(event).__name__
    with open(play["events"], "a") as file:
        line = {"pid": os.getpid(), "event": name, "batch_id": event.batch_id}
        file.write(json.dumps(line) + "\n")
    if name == death.get("event"):
        seen += 1
        if seen == death["nth"]:
            # The driver alone: its JVM and its workers are the supervisor's to find.
            os.kill(os.getpid(), signal.SIGKILL)
    if name == "EpochDecided" and "freeze" in play and Path(play["freeze"]).exists():
        Path(play["freeze"]).unlink()
        time.sleep(1.0)  # what was told goes out by a thread of its own
        os.kill(os.getpid(), signal.SIGSTOP)


def notice(how: str, names: list[str | None]) -> None:
    with open(play["noticed"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), "how": how, "names": names}) + "\n")


def listen(session: Any) -> None:
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            notice("listener", [event.name])

        def onQueryProgress(self, event: Any) -> None:
            """Of the same queries."""

        def onQueryTerminated(self, event: Any) -> None:
            """Of the same queries."""

    session.streams.addListener(Listener())


def shown(session: Any) -> list[str | None]:
    """Which of the queries that there may be are on the page of Spark's UI."""
    from urllib.request import urlopen

    with urlopen(f"{session.sparkContext.uiWebUrl}/StreamingQuery/", timeout=30) as page:
        text = page.read().decode()
    return [name for name in ("shout", "exactum-standby", "&lt;no name&gt;") if name in text]


if "PYSPARK_GATEWAY_PORT" in os.environ:  # below spark-submit, which was given what it needs
    spark = SparkSession.builder.appName("run").getOrCreate()
else:
    spark = exactum.local_session("run", **play["session"])
if "noticed" in play:
    listen(spark)
brokers = {"bootstrap_servers": play["bootstrap_servers"]}
exact = exactum.exactly_once(
    exactum.KafkaSink(play["target"], **brokers, **play.get("sink", {})),
    dead_letters=exactum.KafkaSink(play["dead"], **brokers) if "dead" in play else None,
    on_event=on_event,
)
rows = exactum.read_kafka(
    spark,
    play["source"],
    **brokers,
    start="earliest",
    maxOffsetsPerTrigger=play.get("max_offsets", 60),
)
if "dead" in play:
    lag.STALL_AFTER_S = 2.0
    rows = exactum.decode(rows, value=exactum.Json("n long"), on_error="dead_letter").selectExpr(
        "key", "CAST(value.n AS STRING) AS value"
    )
else:
    # Not upper(): its first use in a JVM builds tables for all of Unicode, a second of CPU for each
    # life.
    rows = rows.selectExpr(
        "CAST(key AS STRING) AS key", "concat('N', substring(CAST(value AS STRING), 2)) AS value"
    )
writer = rows.writeStream.trigger(
    **({"availableNow": True} if play["drain"] else {"processingTime": "0 seconds"})
)
query = exact.start(writer, checkpoint=play["checkpoint"], name=play["query"])
if "noticed" in play:
    notice("active", [each.name for each in spark.streams.active])
    spark.streams.awaitAnyTermination()
    if spark.sparkContext.uiWebUrl:
        notice("UI", shown(spark))
else:
    query.awaitTermination()
print("the script ends by itself", flush=True)
