"""The sinks of a query as operators' commands reach them, without Spark: those that the user gives
by ``--sinks FILE.py:NAME`` or ``--sinks MODULE:NAME``, and how to look into them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.query_record import KnownSink, QueryRecord
from exactum.errors import CheckpointRefused, ExactumError, SettingRefused
from exactum.problem import Problem, not_seen
from exactum.protocol.inspection import Inspectable, Inspector, TransactionView
from exactum.protocol.model import DecisionRecord
from exactum.protocol.sink import DEAD_LETTERS, Sink, participant_names

_NEEDED = ("name", "check_columns", "open")


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
    def transactional_id_prefix(self) -> str | None:
        """What its transactions in Kafka begin with; None: it has none there."""
        return getattr(self.sink, "transactional_id_prefix", None)

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


# ---- as the user gives them ------------------------------------------------------------------


def given_sinks(place: str) -> dict[str, Sink]:
    """By the name of its participant each sink that ``place`` holds: a sink, a list or tuple of
    sinks in the query's order, a mapping of names to sinks, what ``exactly_once(...)`` returned, or
    a function without arguments that returns one of these.

    The module is imported, so what it does at import is done; it cannot start a query.

    Raises:
        SettingRefused: it cannot be imported, holds something else, or starts Spark.
    """
    where = f"--sinks {place}"
    module_name, colon, name = place.rpartition(":")
    if not colon or not module_name or not name:
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where} must be FILE.py:NAME or MODULE:NAME, like --sinks sinks.py:SINKS.",
        )
    from exactum.spark.open_queries import no_start

    reading = f"{module_name} cannot be imported"
    try:
        with no_start(place):
            module = _module(module_name)
            if not hasattr(module, name):
                raise SettingRefused(
                    "SINKS_OPTION",
                    f"{where}: {module_name} has no {name!r}. Give the query's sinks that name "
                    "in it: one sink, a list of them, or a function that returns them.",
                )
            value = getattr(module, name)
            if not _is_sink(value) and not hasattr(value, "sinks") and callable(value):
                reading = f"{name}() failed"
                value = value()
    except ExactumError:
        raise
    except (Exception, SystemExit) as error:
        raise SettingRefused(
            "SINKS_OPTION", f"{where}: {reading}: {type(error).__name__}: {error}"
        ) from error
    return _named(getattr(value, "sinks", value), where)


def _named(value: object, where: str) -> dict[str, Sink]:
    if isinstance(value, Mapping):
        found = dict(value)
        strange = [name for name, sink in found.items() if not _is_sink(sink)]
        if strange:
            raise SettingRefused(
                "SINKS_OPTION", f"{where}: what it has under {strange[0]!r} is no sink."
            )
        return found
    several = [value] if _is_sink(value) else value
    if not isinstance(several, list | tuple) or not all(map(_is_sink, several)):
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where} is a {type(value).__name__}: give a sink, a list of sinks, a mapping of "
            "participants' names to sinks, what exactly_once(...) returned, or a function that "
            "returns one of these.",
        )
    return dict(zip(participant_names(several), several, strict=True))


def _is_sink(value: object) -> TypeGuard[Sink]:
    # A class has these names as well, and is a function that makes a sink.
    return not isinstance(value, type) and all(hasattr(value, each) for each in _NEEDED)


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name).resolve(strict=True)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Sinks' classes are found again by their module's name when they are copied.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


# ---- looking into them -----------------------------------------------------------------------


def inspector_of(target: Target, place: QueryPlace) -> Inspector:
    """
    Raises:
        SettingRefused: it refuses the credentials.
        Unavailable: it does not answer.
        CheckpointRefused: it is a sink that cannot be looked into, or another Kafka cluster answers
            at its address than the one that has its transactions.
    """
    sink = target.sink
    if not isinstance(sink, Inspectable):
        raise CheckpointRefused(
            "SINK_NO_INSPECTOR",
            f"Sink {target.name!r} is a {type(sink).__name__}, which has no inspector(): "
            "nobody can look into it from outside.",
        )
    inspector = sink.inspector(place.query_id, target.name, place.staging())
    try:
        if target.trace:
            inspector.refuse_other(target.trace)
    except ExactumError:
        inspector.close()
        raise
    return inspector


@contextmanager
def inspectors(place: QueryPlace, targets: QueryTargets) -> Iterator[list[Inspector]]:
    """Of all sinks. A former one that cannot be reached is left out: a start would do the same.

    Raises:
        ExactumError: one of the present sinks cannot be reached.
    """
    with ExitStack() as stack:
        opened: list[Inspector] = []
        for target in targets.each:
            try:
                opened.append(stack.enter_context(closing(inspector_of(target, place))))
            except ExactumError:
                if target.present:
                    raise
        yield opened


def views_of(inspector: Inspector, decided: Sequence[DecisionRecord]) -> list[TransactionView]:
    """What is open, and what these records name, each once."""
    views = {view.identity: view for view in inspector.list_open()}
    for record in decided:
        own = record.of(inspector.name)
        described = inspector.describe(own) if own else ()
        for prepared, view in zip(own, described, strict=True):
            at = record.epoch.batch_id, record.attempt
            views[prepared.identity] = view.of_record(prepared, *at)
    return list(views.values())
