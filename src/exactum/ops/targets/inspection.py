"""How commands look into the sinks of a query: what is open, and where what is decided stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import CheckpointRefused, ExactumError
from exactum.ops.targets.target import QueryTargets, Target
from exactum.protocol import resolve
from exactum.protocol.inspection import Inspectable, Inspector, TransactionView, is_traced
from exactum.protocol.model import DecisionRecord, PreparedTransaction


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
        if target.trace and is_traced(inspector):
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


def in_force(records: Sequence[DecisionRecord], first_batch: int = 0) -> list[DecisionRecord]:
    """The COMMITs in force from a batch on."""
    batches = sorted({r.epoch.batch_id for r in records if r.epoch.batch_id >= first_batch})
    of_batches = ([r for r in records if r.epoch.batch_id == batch_id] for batch_id in batches)
    return [record for record in map(resolve.commit_in_force, of_batches) if record is not None]


def views_of(
    inspector: Inspector,
    decided: Sequence[DecisionRecord],
    is_there: Callable[[PreparedTransaction], bool] = lambda prepared: True,
) -> list[TransactionView]:
    """What is open, and what these records name, each once. ``is_there``: whether the inspector can
    know of it.
    """
    views = {view.identity: view for view in inspector.list_open()}
    for record in decided:
        own = [prepared for prepared in record.of(inspector.name) if is_there(prepared)]
        described = inspector.describe(own) if own else ()
        for prepared, view in zip(own, described, strict=True):
            at = record.epoch.batch_id, record.attempt
            views[prepared.identity] = view.of_record(prepared, *at)
    return list(views.values())
