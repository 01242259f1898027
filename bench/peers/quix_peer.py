"""Quix Streams, exactly once. Runs in an environment of its own: nothing of exactum or of ``bench``
is imported.

Usage: python quix_peer.py NAME=VALUE...  It uses one core for each process, so this one starts
another for each further share of the parallelism.
"""

from __future__ import annotations

import subprocess
import sys

from quixstreams import Application


def main(order: dict[str, str], share: int) -> None:
    app = Application(
        broker_address=order["servers"],
        consumer_group=order["group"],
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_interval=int(order["interval_ms"]) / 1000,
        state_dir=f"{order['folder']}/state-{share}",
        loglevel="WARNING",
        # Under a name of its own a process need not wait until its dead self has left the group or
        # has timed out.
        consumer_extra_config={
            "isolation.level": "read_committed",
            "group.instance.id": f"quix-{share}",
        },
        producer_extra_config={
            "acks": "all",
            "linger.ms": int(order["linger_ms"]),
            "batch.size": int(order["batch_bytes"]),
            "compression.type": "none",
            "queue.buffering.max.kbytes": int(order["buffer_bytes"]) // 1024,
            "queue.buffering.max.messages": 1_000_000,
            "transactional.id": f"{order['group']}-{share}",
        },
    )
    source = app.topic(order["source"], value_deserializer="bytes", key_deserializer="bytes")
    target = app.topic(order["target"], value_serializer="bytes", key_serializer="bytes")
    frame = app.dataframe(source)
    if order["job"] == "aggregate":
        frame = frame.apply(total, stateful=True)
    frame.to_topic(target)
    app.run()


def total(value: bytes, state) -> bytes:
    count, added = state.get("total", default=(0, 0))
    now = (count + 1, added + int(value[:16]))
    state.set("total", now)
    return b"%d,%d" % now


if __name__ == "__main__":
    chosen = dict(argument.split("=", 1) for argument in sys.argv[1:])
    own = chosen.get("share")
    if own is None:
        others = [
            subprocess.Popen([sys.executable, __file__, *sys.argv[1:], f"share={share}"])
            for share in range(1, int(chosen["parallelism"]))
        ]
    main(chosen, int(own or 0))
