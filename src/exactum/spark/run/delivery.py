"""What ``exactly_once`` and its like were given: where a query's batches go, and under which
guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

from exactum import events
from exactum.checkpoint.query_place import Places
from exactum.protocol.sink import DEAD_LETTERS as DEAD_LETTERS
from exactum.protocol.sink import Guarantee, Sink, participant_names
from exactum.spark.control.stream import ControlStream


@dataclass(frozen=True)
class Targets:
    """A query's sinks, and the sink for the rows that these refuse, if there is one."""

    sinks: tuple[Sink, ...]
    dead_letters: Sink | None = None

    def all(self) -> tuple[Sink, ...]:
        return self.sinks if self.dead_letters is None else (*self.sinks, self.dead_letters)

    def names(self) -> list[str]:
        """The participants' names: the sinks' own, the later of equal ones numbered, then
        ``DEAD_LETTERS``.
        """
        names = participant_names(self.sinks)
        return names if self.dead_letters is None else [*names, DEAD_LETTERS]


@dataclass(frozen=True)
class DeliverySettings:
    """One call of ``exactly_once``, ``at_least_once`` or ``at_most_once``: its checked
    arguments.
    """

    targets: Targets
    guarantee: Guarantee
    places: Places
    control: tuple[ControlStream, ...]
    emit: events.Listener
