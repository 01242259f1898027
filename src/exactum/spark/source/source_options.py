"""What a call of ``read_kafka`` chose, kept in the options of Spark's source for those who listen
to the query later.

Spark hands unknown options on untouched, so they are found again in the plan of the running query,
whatever was made of the frame in between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from exactum.checkpoint.partition_offsets import Offsets, from_json, to_json

PREFIX = "exactum."
CLIENT_PREFIX = PREFIX + "client."
STALL_AFTER_S = 30.0


@dataclass(frozen=True)
class SourceOptions:
    """What one call of ``read_kafka`` chose. A source that was made by Spark's own reader has the
    defaults.

    ``source_id`` names the call, ``made_ms`` is when it was made (ms since the epoch; 0: unknown),
    ``why`` tells by partition (``orders-0``) why it starts where it does, ``word`` is a start that
    goes for all partitions, ``stop`` the first offset of each partition that is not read,
    ``client`` are librdkafka settings that replace the translated ones.
    """

    source_id: str = ""
    made_ms: int = 0
    group_id: str | None = None
    commit_offsets: bool = False
    word: str | None = None
    why: Mapping[str, str] = field(default_factory=dict)
    stop: Offsets | None = None
    stall_after_s: float = STALL_AFTER_S
    client: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, str]:
        """These as options of Spark's source."""
        options = {
            "source.id": self.source_id,
            "source.made.ms": str(self.made_ms),
            "stall.after.s": str(self.stall_after_s),
        }
        if self.group_id is not None:
            options["group.id"] = self.group_id
            options["commit.offsets"] = str(self.commit_offsets).lower()
        if self.word is not None:
            options["start"] = self.word
        if self.why:
            options["start.why"] = json.dumps(dict(self.why))
        if self.stop is not None:
            options["stop.offsets"] = to_json(self.stop)
        named = {PREFIX + name: value for name, value in options.items()}
        return named | {CLIENT_PREFIX + name: value for name, value in self.client.items()}

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        """What a source's options say; the defaults where there are none."""
        ours = {
            name[len(PREFIX) :]: value for name, value in options.items() if name.startswith(PREFIX)
        }
        client = len(CLIENT_PREFIX) - len(PREFIX)
        return SourceOptions(
            source_id=ours.get("source.id", ""),
            made_ms=int(ours.get("source.made.ms", "0")),
            group_id=ours.get("group.id"),
            commit_offsets=ours.get("commit.offsets") == "true",
            word=ours.get("start"),
            why=json.loads(ours.get("start.why", "{}")),
            stop=from_json(ours["stop.offsets"]) if "stop.offsets" in ours else None,
            stall_after_s=float(ours.get("stall.after.s", STALL_AFTER_S)),
            client={
                name[client:]: value for name, value in ours.items() if name.startswith("client.")
            },
        )
