"""The sinks of a query as operators' commands reach them: those that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactum.checkpoint.query_record import KnownSink, QueryRecord
from exactum.errors import SettingRefused
from exactum.problem import Problem, not_seen
from exactum.protocol.sink import DEAD_LETTERS, Sink


@dataclass(frozen=True)
class Target:
    """One sink of a query. ``name`` is its participant's; ``trace`` what the checkpoint has on file
    of where its transactions are; ``present``: the last run had it.
    """

    name: str
    sink: Sink
    trace: Mapping[str, str] = field(default_factory=dict)
    present: bool = True

    @property
    def client_settings(self) -> Mapping[str, str] | None:
        """How to reach the Kafka cluster that it writes to; None: to none."""
        return getattr(self.sink, "client_settings", None)

    @property
    def has_one_sender(self) -> bool:
        """Whether to commit takes the sending over from a driver that lives."""
        return getattr(self.sink, "has_one_sender", False)


@dataclass(frozen=True)
class QueryTargets:
    """``each``: the sinks that were given, in the order of the last run. ``left_out`` are names of
    sinks of the last run that were not, ``former`` sinks of runs before. ``how`` says what to type.
    """

    each: tuple[Target, ...]
    left_out: tuple[str, ...] = ()
    former: tuple[KnownSink, ...] = ()
    how: str = ""

    def named(self, name: str) -> Target | None:
        """The one of that participant's name, if it was given."""
        return next((target for target in self.each if target.name == name), None)

    def unseen(self) -> list[Problem]:
        """That not all sinks were given, where it is so."""
        names = ", ".join(map(repr, self.left_out))
        return [not_seen(f"sink {names}", self.how)] if self.left_out else []

    def refuse_left_out(self) -> None:
        """
        Raises:
            SettingRefused: not all sinks of the last run were given.
        """
        if self.left_out:
            names = ", ".join(map(repr, self.left_out))
            raise SettingRefused("SINKS_NOT_GIVEN", f"The query has the sink {names}. {self.how}")


def targets_of(record: QueryRecord, given: Mapping[str, Sink], command: str) -> QueryTargets:
    """The sinks of the last run that are ``given``, by their names; ``command`` is what was typed,
    for who has to type it again.

    Raises:
        SettingRefused: nothing is on file and nothing is given; a sink is given that the query does
            not have.
    """
    how = (
        "--sinks does not give it, and its target is asked through the sink itself.\n"
        f"Type: {command} --sinks FILE.py:NAME, where FILE.py has the query's sinks as NAME; or "
        "set EXACTUM_SINKS to that."
    )
    if not record.sinks:
        if not given:
            raise SettingRefused(
                "SINKS_NOT_GIVEN",
                "The checkpoint has no list of this query's sinks: it is not an exactly-once query "
                f"of exactum's, or never came to a batch. {how}",
            )
        return QueryTargets(tuple(Target(name, sink) for name, sink in given.items()))
    names = [sink.name for sink in record.sinks]
    strange = sorted(given.keys() - {*names, DEAD_LETTERS})
    if strange:
        raise SettingRefused(
            "SINK_UNKNOWN",
            f"--sinks gives {strange[0]!r}, and this query has no such sink. It has: "
            f"{', '.join(map(repr, names))}.",
        )
    ordered = sorted(record.sinks, key=lambda sink: not sink.present)
    if DEAD_LETTERS in given.keys() - set(names):  # of former runs
        ordered.append(KnownSink(DEAD_LETTERS, {}, present=False))
    return QueryTargets(
        tuple(
            Target(sink.name, given[sink.name], sink.trace, sink.present)
            for sink in ordered
            if sink.name in given
        ),
        tuple(sink.name for sink in ordered if sink.name in record.present - given.keys()),
        tuple(sink for sink in ordered if sink.name not in record.present | given.keys()),
        how,
    )
