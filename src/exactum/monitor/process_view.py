"""What a supervisor sees of the processes of its script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessView:
    """``pid`` is the process that runs the queries, None while there is none.

    ``silent_s``: for how long nothing was heard of it; it says something twice a second, once it
    has imported exactum, and is None before. ``has_begun``: a query of it has begun.
    ``has_standby``: whether a standby waits for its turn, None where none is asked for.
    ``standby_pid``: it, or the process that is about to be it.
    ``dropped``: events that could not be told to the supervisor, of all processes until now.
    """

    pid: int | None = None
    silent_s: float | None = None
    has_begun: bool = False
    has_standby: bool | None = None
    standby_pid: int | None = None
    dropped: int = 0
