"""The command ``exactum accept``: a person takes what a start refuses, and says so once.

Target, decision log and checkpoint do not end with the same batch (``protocol.ends``). What is
older cannot be brought back, so the query is to go on without what is missing. Everything that a
start compares begins anew behind a record of this command.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import click
from msgspec.structs import replace

from exactum.checkpoint import run_file
from exactum.checkpoint.query_place import (
    LOAD_BATCH,
    BatchLoad,
    QueryPlace,
    open_log,
    refuse_another_log,
    shown_place,
)
from exactum.checkpoint.query_record import QueryRecord, record_of
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.ops.render import ExitStatus
from exactum.ops.targets.options import DECISION_LOG, SINKS, QueryOptions
from exactum.ops.targets.sinks import QueryTargets, inspector_of
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import Ends, Noted, ends_at, gaps, recent, unknown_commits
from exactum.protocol.inspection import Inspectable
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    new_incarnation,
    rows_of,
    run_number,
)
from exactum.protocol.participant import Participant
from exactum.storage.storage import Storage

R = TypeVar("R")

ENDING_S = 5.0
"""How long a run whose query has just ended may be seen."""
STOP_FIRST = "Stop it first. Nothing was changed."


@dataclass(frozen=True)
class Difference:
    """What a start would refuse, and what it costs to go on. ``ahead``: sinks whose marker stands
    in the way; ``runs``: how many runs of the query have left a trace. ``record`` is what the query
    had on file, ``step`` what a start would do.
    """

    lines: tuple[str, ...]
    ahead: tuple[str, ...]
    runs: int
    record: QueryRecord
    step: resolve.Redeliver | resolve.Close


@click.command()
@click.option("--checkpoint", metavar="DIR", help="The query's checkpointLocation.")
@DECISION_LOG
@SINKS
@click.option(
    "--load",
    "load_id",
    metavar="ID",
    help="Of a batch load, which has no checkpoint: what write() was given as id=.",
)
@click.option(
    "--batch",
    "batch_id",
    type=click.IntRange(min=0),
    metavar="N",
    help="The micro-batch that the query goes on with, as the refusal names it; with --without, "
    "the decided one.",
)
@click.option(
    "--without",
    metavar="SINK",
    help="Keep micro-batch N, or the load, as decided, without what is gone of it from this sink.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept(
    *,
    checkpoint: str | None,
    decision_log: str | None,
    sinks: str | None,
    load_id: str | None,
    batch_id: int | None,
    without: str | None,
    yes: bool,
) -> None:
    """Go on where target, decision log and checkpoint do not fit together.

    For a query that is stopped, and that a start refuses because one of them is older than the
    rest. Says what is lost or doubled by it, and asks. Changes the query's records and, in a
    target that is ahead of the log, what it notes of its batches; never a row.

    A batch load that is decided, and that a sink does not take any more, is given up in that sink
    by --load ID --decision-log PLACE --without SINK.

    Exit status: 0 accepted, or nothing to accept; 1 you said no; 2 it was refused, or could not be
    found out.
    """
    options = QueryOptions.of(checkpoint or "", decision_log, sinks)
    if load_id is not None:
        place_of_log = options.decision_log
        if place_of_log is None or without is None or (batch_id, checkpoint) != (None, None):
            raise click.UsageError("--load goes with --decision-log and --without, and no other.")
        load = BatchLoad(load_id)
        with closing(open_log(load, place_of_log)) as log:
            _keep_without(log, str(load), None, LOAD_BATCH, without, yes=yes)
        return
    if checkpoint is None or batch_id is None:
        raise click.UsageError("Give --checkpoint and --batch; or, of a batch load, --load.")
    place = options.place()
    _refuse_living(place.files, STOP_FIRST)
    if without is not None:
        what = f"micro-batch {batch_id}"
        with closing(place.open_log()) as log:
            if batch_id < place.first_unfinished() and not _waits(
                place, options.targets(place), log, batch_id, without
            ):
                click.echo(f"nothing to accept: {what} is complete, as Spark has logged")
                return
            _keep_without(log, what, place.files, batch_id, without, yes=yes)
        return
    targets = options.targets(place)
    targets.refuse_left_out()
    with _compared(place, targets, batch_id) as (log, participants, found):
        if not found.lines:
            click.echo("nothing to accept: targets, log and checkpoint end with the same batch")
            return
        _say_and_ask(found.lines, f"go on with micro-batch {batch_id}", yes=yes)
        _refuse_living(place.files, STOP_FIRST)
        _record(place, log, batch_id, found)
        for participant in participants:
            if participant.name in found.ahead and participant.remembers:
                participant.forget_batches(batch_id)
    click.echo(f"accepted: start the query; it goes on with micro-batch {batch_id}")


def _refuse_living(files: Storage | None, todo: str) -> None:
    """
    Raises:
        CheckpointRefused: a run lives.
    """
    alive = () if files is None else run_file.outliving(files, ENDING_S)
    if alive:
        raise CheckpointRefused("QUERY_RUNS", f"{', '.join(map(str, alive))} lives. {todo}")


def _say_and_ask(lines: Sequence[str], what: str, *, yes: bool) -> None:
    for line in lines:
        click.echo(f"- {line}")
    if not yes and not click.confirm(f"Accept this, and {what}?"):
        click.echo("nothing was changed")
        sys.exit(ExitStatus.NEEDS_PERSON)


# ---- the ends ------------------------------------------------------------------------------------


@contextmanager
def _compared(
    place: QueryPlace, targets: QueryTargets, batch_id: int
) -> Iterator[tuple[PermitLog, list[Participant], Difference]]:
    """The query's log, the participants of its sinks, and what does not fit.

    Raises:
        SettingRefused: the query goes on with another batch; or its sinks are not known.
        ExactumError: the log or a sink cannot be asked.
    """

    begins = place.first_unfinished()
    if batch_id != begins:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"{place} goes on with micro-batch {begins}, not with {batch_id}: say --batch {begins} "
            "if that is what you mean. Nothing was changed.",
        )
    with ExitStack() as stack:
        records = PermitLog(stack.enter_context(closing(open_log(place, place.decision_log))))
        participants: list[Participant] = []
        for target in (t for t in targets.each if t.present):
            if not isinstance(target.sink, Inspectable):
                click.echo(f"- sink {target.name!r} cannot be looked into: it is not compared")
                continue
            inspector = stack.enter_context(closing(inspector_of(target, place)))
            participants.append(inspector.participant())
        yield records, participants, _difference(place, begins, records, participants)


def _difference(
    place: QueryPlace, begins: int, log: PermitLog, participants: Sequence[Participant]
) -> Difference:
    def each(function: Callable[[Participant], R], /) -> list[R]:
        return [function(participant) for participant in participants]

    record, step = place.record(), resolve.at_start(log.read(begins))
    noted = record.noted
    earlier = recent(log, begins, noted)
    ends = ends_at(begins, log, each, earlier, noted)
    lines = [*gaps(ends), *_costs(ends)]
    unknown = unknown_commits(begins, log, each, earlier, noted, run=record.runs + 1)
    for name, count in Counter(sighting.participant for sighting in unknown).items():
        lines.append(
            f"sink {name!r} has committed {count} transactions that no decision names: what they "
            f"have of micro-batch {begins}, and of later ones, will be there twice"
        )
    try:
        refuse_another_log(place, record, log, shown_place(place.decision_log), begins)
    except CheckpointRefused as error:
        lines.append(f"{str(error).partition(chr(10))[0]} What was decided there is written again.")
    if lines:
        lines += _dropped(participants, begins, log, ends)
    ahead = tuple(t.name for t in ends.targets if t.has is not None and t.has >= begins)
    runs = max([record.runs, *(run_number(s.incarnation) for s in unknown if s.incarnation)])
    return Difference(tuple(lines), ahead, runs, record, step)


def _costs(ends: Ends) -> Iterator[str]:
    """What it means to go on, for each gap of ``ends``."""
    log = -1 if ends.log is None else ends.log
    if ends.noted is not None and ends.noted > log:
        yield (
            f"micro-batches {log + 1} to {ends.noted} have no decision: what of them is missing in "
            "a sink stays missing, and 'exactum verify' cannot tell"
        )
    for target in ends.targets:
        if target.has is None:
            continue
        if target.has >= ends.begins:
            yield (
                f"micro-batches {ends.begins} to {target.has} are written again: in sink "
                f"{target.name!r} their rows will be there twice, unless you remove them"
            )
        elif target.owes is not None and target.has < target.owes:
            yield (
                f"rows of micro-batches {target.has + 1} to {target.owes} are missing in sink "
                f"{target.name!r}, and are not written again"
            )


def _dropped(
    participants: Sequence[Participant], begins: int, log: PermitLog, ends: Ends
) -> Iterator[str]:
    """What is decided and waits in a sink: a start behind the comparison takes it for leftovers.
    It may be committed before, unless what came before it is gone.
    """
    lossy = {target.name for target in ends.targets if target.has_lost}
    named = {
        (p.participant, p.identity): record.epoch.batch_id
        for record in recent(log, begins)
        if record.decision is Decision.COMMIT
        for p in record.prepared
    }
    for participant in participants:
        waits = [named.get((s.participant, s.identity)) for s in participant.list_open()]
        dropped = (
            "they are dropped, for what came before them is gone"
            if participant.name in lossy
            else "they are dropped. 'exactum transactions finish' commits them instead"
        )
        for batch_id, count in Counter(b for b in waits if b is not None).items():
            yield (
                f"{count} transactions of micro-batch {batch_id}, which is decided, still wait in "
                f"sink {participant.name!r}: {dropped}"
            )


def _record(place: QueryPlace, log: PermitLog, begins: int, found: Difference) -> None:
    """An ABORT in the slot that was free, which keeps out a run of before; and from where on a
    start compares, with batches and with runs.

    Raises:
        CheckpointRefused: the query has gone on since it was compared. What it wrote must not be
            forgotten.
        ExactumError: as ``RecordFile.change``.
    """

    step, noted = found.step, Noted(first=begins)
    gone_on = CheckpointRefused(
        "QUERY_RUNS",
        f"{place} was started or accepted since it was compared. Nothing was changed. If a start "
        "still refuses, repeat the command.",
    )
    if place.record() != found.record:
        raise gone_on
    if isinstance(step, resolve.Close):
        epoch = Epoch(place.query_id, begins)
        mine = DecisionRecord(epoch, step.attempt, Decision.ABORT, new_incarnation())
        if log.decide(mine) != mine:
            raise gone_on
        noted = Noted(first=begins, accepted=step.attempt)
    at, log_id = shown_place(place.decision_log), log.log_id()
    record_of(place.files, place.query_id).change(
        lambda record: replace(
            record, decision_log=at, log_id=log_id, noted=noted, runs=max(found.runs, record.runs)
        )
    )


# ---- a decided batch without a sink --------------------------------------------------------------


def _waits(
    place: QueryPlace, targets: QueryTargets, log: DecisionLog, batch_id: int, name: str
) -> bool:
    """Whether something of a batch that Spark has finished is open in a sink, or nobody can look: a
    start would commit it, or find that it is not whole any more.

    Raises:
        SettingRefused: a sink of the query is not given.
        ExactumError: as ``DecisionLog.read`` and ``inspector_of``.
    """
    targets.refuse_left_out()
    in_force, target = resolve.commit_in_force(log.read(batch_id)), targets.named(name)
    if in_force is None or target is None:
        return False
    if not isinstance(target.sink, Inspectable):
        return True
    with closing(inspector_of(target, place)) as inspector:
        opened = {sighting.identity for sighting in inspector.participant().list_open()}
    return any(p.identity in opened for p in in_force.of(name))


def _keep_without(
    log: DecisionLog, what: str, files: Storage | None, batch_id: int, name: str, *, yes: bool
) -> None:
    """``files``: where living runs of the query are seen; None: of a load nobody sees them.

    Raises:
        SettingRefused: the batch is not decided, or not for this sink.
        CheckpointRefused: somebody has written a record meanwhile, or a run has begun.
    """

    records = log.read(batch_id)
    in_force = resolve.commit_in_force(records)
    own = () if in_force is None else in_force.of(name)
    if in_force is None or not own:
        named = () if in_force is None else in_force.prepared
        sinks = ", ".join(sorted({p.participant for p in named})) or "no sink"
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"No decision of {what} names sink {name!r}; it names {sinks}. Nothing was changed.",
        )
    lines = (
        f"{len(own)} transactions with {rows_of(own)} rows of {what} are given up in sink "
        f"{name!r}: what of them is not visible there stays missing",
        "the other sinks keep their part, or get it at the next start; nobody repeats it",
    )
    _say_and_ask(lines, "keep it as decided", yes=yes)
    mine = resolve.superseding(in_force, len(records), in_force.incarnation, own, ())
    if log.decide(mine) != mine:
        raise CheckpointRefused("QUERY_RUNS", f"{what}: a run has just begun. Stop it first.")
    begun = f"It may have begun before {what} is decided without sink {name!r}, as it is now, and "
    _refuse_living(files, f"{begun}still commit it there. Look there when it has ended.")
    click.echo(f"accepted: {what} is decided without sink {name!r}")
