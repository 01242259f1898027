"""What the driver does in one steady micro-batch of a plain copy, in all its threads: which modules
and rooms it passes, how many calls, how deep, how often into the JVM, and which threads are there.

    python -m bench.profile [--calls]      --calls: each function with its number of calls
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import exactum
from bench import report
from bench.load import Load, fill
from exactum import events
from exactum.local import LocalKafka

SOURCES = str(Path(exactum.__file__).parent)
TO_JVM = ("clientserver.py", "send_command")
"""py4j's file and function that send one command to the JVM."""
CALLS = ("c\n", "i\n")
"""How calls of methods and constructors begin; others look names up, or let objects go."""
STEADY_AFTER = 8
EACH = 1_000
LOAD = Load(records=12 * EACH, bytes=100)
TIMEOUT_S = 120.0


@dataclass
class Watch:
    """Counts while ``is_on``; the function for ``threading.setprofile``."""

    is_on: bool = False
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    to_jvm: int = 0
    deepest: int = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.is_on or event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(SOURCES):
            self.calls[code.co_filename[len(SOURCES) + 1 :], code.co_qualname] += 1
            self.deepest = max(self.deepest, depth(frame))
        elif code.co_filename.endswith(TO_JVM[0]) and code.co_name == TO_JVM[1]:
            self.to_jvm += str(frame.f_locals["command"]).startswith(CALLS)

    @property
    def modules(self) -> set[str]:
        return {module for module, _ in self.calls}

    @property
    def rooms(self) -> set[str]:
        return {module.rpartition("/")[0] for module in self.modules}


def depth(frame: FrameType | None) -> int:
    """How many of the frames on the stack are exactum's."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_filename.startswith(SOURCES)
        frame = frame.f_back
    return found


def profile(kafka: LocalKafka, folder: str) -> tuple[Watch, list[str]]:
    """The watch of one micro-batch, from the end of the one before to its own end, and the names of
    exactum's threads at that moment.
    """
    watch = Watch()
    threads: list[str] = []
    done = threading.Event()

    def on_event(event: events.Event) -> None:
        if not isinstance(event, events.EpochCompleted):
            return
        watch.is_on = event.batch_id == STEADY_AFTER
        if event.batch_id == STEADY_AFTER + 1:
            threads.extend(t.name for t in threading.enumerate() if t.name.startswith("exactum"))
            done.set()

    threading.setprofile(watch)
    sys.setprofile(watch)
    spark = exactum.local_session("profile", master="local[2]")
    servers = kafka.bootstrap_servers
    kafka.create_topic("out", partitions=1)
    fill(kafka, LOAD, partitions=1)
    records = exactum.read_kafka(
        spark, LOAD.topic, bootstrap_servers=servers, maxOffsetsPerTrigger=EACH
    )
    once = exactum.exactly_once(
        exactum.KafkaSink("out", bootstrap_servers=servers), on_event=on_event
    )
    writer = records.select("key", "value").writeStream.trigger(processingTime="1 second")
    query = once.start(writer, checkpoint=f"{folder}/checkpoint")
    if not done.wait(TIMEOUT_S):
        raise TimeoutError(f"batch {STEADY_AFTER + 1} is not done; the query: {query.exception()}")
    query.stop()
    sys.setprofile(None)
    threading.setprofile(None)
    return watch, threads


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="each function with its calls")
    chosen = parser.parse_args()
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        watch, threads = profile(kafka, folder)
    report.table(
        "one steady micro-batch of a copy, all threads of the driver",
        ["modules", "rooms", "calls", "deepest", "calls into the JVM", "threads of exactum"],
        [
            [
                str(len(watch.modules)),
                str(len(watch.rooms)),
                str(watch.calls.total()),
                str(watch.deepest),
                str(watch.to_jvm),
                f"{len(threads)}: {', '.join(sorted(threads))}",
            ]
        ],
    )
    if chosen.calls:
        rows = [[f"{file}: {name}", str(n)] for (file, name), n in watch.calls.most_common()]
        report.table("by function", ["function", "calls"], rows)


if __name__ == "__main__":
    main()
