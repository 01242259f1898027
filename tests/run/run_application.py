"""An ordinary PySpark script, Kafka in and Kafka out, that may be told to die: what ``exactum run`` keeps running.

Its one argument is a JSON object. ``deaths`` is a folder with a file ``<n>`` of JSON for each planned death; each life
takes the next one: ``{"after_s": 0.1}`` from its start, or ``{"event": "EpochDecided", "nth": 1}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def planned(deaths: Path) -> dict[str, Any]:
    """The next death, or none. Taken by a rename, so that no other life takes it as well."""
    for path in sorted((p for p in deaths.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)):
        taken = path.with_name(f"{path.name}.taken-{os.getpid()}")
        try:
            path.rename(taken)
        except FileNotFoundError:
            continue
        return dict(json.loads(taken.read_text()))
    return {}


def die() -> None:
    """SIGKILL of the driver alone: its JVM and its workers are the supervisor's to find."""
    os.kill(os.getpid(), signal.SIGKILL)


def later(seconds: float) -> None:
    time.sleep(seconds)
    die()


play = json.loads(sys.argv[1])
death = planned(Path(play["deaths"]))
if "after_s" in death:
    threading.Thread(target=later, args=(death["after_s"],), daemon=True).start()

import exactum  # noqa: E402  (a life may end before)

seen = 0


def on_event(event: exactum.events.Event) -> None:
    global seen
    name = type(event).__name__
    with open(play["events"], "a") as file:
        line = {"pid": os.getpid(), "at_s": time.time(), "event": name, "batch_id": event.batch_id}
        if isinstance(event, exactum.events.RunStarted | exactum.events.Progress | exactum.events.EpochCompleted):
            line["text"] = repr(event)
        file.write(json.dumps(line) + "\n")
    if name == death.get("event"):
        seen += 1
        if seen == death["nth"]:
            die()
    if name == "EpochCompleted" and play.get("prints"):
        print(f"after epoch {event.batch_id}: {play['prints']}")


spark = exactum.local_session("run", **play["session"])
exact = exactum.exactly_once(
    exactum.KafkaSink(play["target"], bootstrap_servers=play["bootstrap_servers"], **play.get("sink", {})),
    on_event=on_event,
)
query = (
    exactum.read_kafka(
        spark,
        play["source"],
        bootstrap_servers=play["bootstrap_servers"],
        start="earliest",
        maxOffsetsPerTrigger=play.get("max_offsets", 60),
    )
    # Not upper(): its first use in a JVM builds tables for all of Unicode, a second of CPU for each life.
    .selectExpr("CAST(key AS STRING) AS key", "concat('N', substring(CAST(value AS STRING), 2)) AS value")
    .writeStream.foreachBatch(exact)
    .queryName("shout")
    .option("checkpointLocation", play["checkpoint"])
    .trigger(**({"availableNow": True} if play["drain"] else {"processingTime": "0 seconds"}))
    .start()
)
query.awaitTermination()
print("the script ends by itself", flush=True)
