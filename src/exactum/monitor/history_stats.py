"""A query's numbers from its history on disk, quickly: of facts that come every few seconds the old
ones are read thinly, so that the whole history takes a fraction of a second.

It is for a look at how a query is. Its totals are those of the facts that were read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.fact import Fact
from exactum.monitor.history import segments
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.script_stats import ScriptStats

WHOLE_MS = 600_000
"""Of so long ago everything is read."""
THIN_MS = 30_000
"""Of what is older, one look in this time."""
SAME_LOOK_MS = 1_000
LINES_MAX = 4_096
"""Newest lines of each kind that are read."""
EPOCHS_MAX = 256

_HEAD = re.compile(r'\{"at_ms":(\d+),"fact":"(\w+)"')
_OFTEN = ("InputLag", "Progress", "QueryWaits")
_EACH_EPOCH = "EpochCompleted"


def stats_of_history(checkpoint: Path, query_id: str, now_ms: int) -> QueryStats:
    """What the history says of the query; ``heard_ms`` is None where there is none.

    Raises:
        OSError: the folder is there and may not be read.
    """
    stats = ScriptStats()
    for fact in sorted(_facts(checkpoint, now_ms), key=lambda fact: fact.at_ms):
        if fact.query_id == query_id:
            stats.observe(fact)
    return stats.queries.get(query_id, QueryStats(query_id))


def _facts(checkpoint: Path, now_ms: int) -> Iterator[Fact]:
    rare, epochs = deque[str](maxlen=LINES_MAX), deque[str](maxlen=EPOCHS_MAX)
    often = {name: deque[str](maxlen=LINES_MAX) for name in _OFTEN}
    kept_ms = dict.fromkeys(_OFTEN, 0)
    for line in _lines(checkpoint):
        head = _HEAD.match(line)
        if head is None:
            continue
        at_ms, name = int(head[1]), head[2]
        if name == _EACH_EPOCH:
            epochs.append(line)
        elif name not in often:
            rare.append(line)
        else:
            begins = at_ms - kept_ms[name] >= THIN_MS
            if begins:
                kept_ms[name] = at_ms
            # All topics of one look are kept.
            if begins or at_ms - kept_ms[name] < SAME_LOOK_MS or now_ms - at_ms < WHOLE_MS:
                often[name].append(line)
    for lines in (rare, epochs, *often.values()):
        for line in lines:
            fact = Fact.from_line(line)
            if fact is not None:
                yield fact


def _lines(checkpoint: Path) -> Iterator[str]:
    for path in segments(checkpoint / HISTORY):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from file
        except FileNotFoundError:  # it was the oldest, and had to go
            continue
