"""``exactum verify``: what the records promise, against what is in the targets.

It never trusts the code that wrote. It reads Kafka's logs batch header by batch header, a
database's ledger and row versions, and the files themselves, by code of its own.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import click

from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError, SettingRefused
from exactum.monitor.decisions import Promises, read_batch, read_promises, read_unknown
from exactum.ops import render
from exactum.ops.render import Cell, ExitStatus
from exactum.ops.targets.options import JSON, QueryOptions, query_options
from exactum.ops.targets.sinks import QueryTargets, inspector_of
from exactum.protocol.inspection import Evidence, Finding, Promise, unknowable
from exactum.protocol.participant import Participant
from exactum.protocol.resolve import commit_in_force

NOT_GIVEN = "the sink is not given: --sinks FILE.py:NAME, or set EXACTUM_SINKS"
OTHER_KIND = "another kind of sink had this name then"
OLDER = "checkpoint or log are an older copy, or two queries run on copies of one checkpoint"
DOUBT_LOOKS_MAX = 4
DOUBT_PAUSE_S = 1.0
"""An epoch that a living driver is just committing is looked at again, so often."""
COLOURS = {
    "exact": render.GREEN,
    "missing": render.RED,
    "extra": render.RED,
    "different": render.RED,
    "in doubt": render.YELLOW,
    "unknowable": render.CYAN,
}


@click.command()
@query_options
@click.option("--from", "first", type=click.IntRange(min=0), help="First micro-batch.")
@click.option("--to", "last", type=click.IntRange(min=0), help="Last micro-batch.")
@click.option("--sink", "only", metavar="NAME", help="This sink alone.")
@JSON
def verify(
    *,
    options: QueryOptions,
    first: int | None,
    last: int | None,
    only: str | None,
    as_json: bool,
) -> None:
    """Prove what came out: the decision records against what is in each target.

    By default all micro-batches on record (Spark and exactum keep the last hundred). Kafka's logs
    are read and counted by producer and marker, databases by ledger and rows, files by reading
    them; never by the code that wrote. The query may run or not.

    Exit status 0: all exact. 1: rows are missing, extra, different or in doubt. 2: nothing is known
    to be wrong, and not everything can be known (retention, targets of your own), or it could not
    be looked at.
    """
    from rich.console import Console

    place = options.place()
    targets = options.targets(place)
    with Console(stderr=True).status("") as shown:

        def tick(sink: str) -> None:
            shown.update(f"verifying {sink}")

        promises, evidence = read_evidence(place, targets, only, (first, last), tick)
        for _ in range(DOUBT_LOOKS_MAX):
            doubted = [each.batch_id for each in evidence if each.finding is Finding.IN_DOUBT]
            if not doubted:
                break
            time.sleep(DOUBT_PAUSE_S)
            again_at = min(doubted), max(doubted)
            _, again = read_evidence(place, targets, only, again_at, tick)
            newer = {(each.batch_id, each.sink): each for each in again}
            evidence = [newer.get((e.batch_id, e.sink), e) for e in evidence]
    status = _status(evidence)
    if status is ExitStatus.FINE and _leaves_open(promises, first, last):
        status = ExitStatus.CANNOT_TELL
    if as_json:
        value = render.plain(replace(promises, each=()))
        del value["each"]
        render.show_json(
            {"query_id": place.query_id, "status": status, **value, "epochs": evidence}
        )
    else:
        _show(evidence, promises)
    sys.exit(status)


def read_evidence(
    place: QueryPlace,
    targets: QueryTargets,
    only: str | None,
    batches: tuple[int | None, int | None],
    tick: Callable[[str], None],
) -> tuple[Promises, list[Evidence]]:
    """What is promised from the first to the last of ``batches``, and what the sinks have; by
    default of all records. ``only``: that sink alone. ``tick`` is called with each sink's name.

    Raises:
        SettingRefused: there is no such batch, or no record names the sink.
        ExactumError: the decision log cannot be read.
    """
    found = read_promises(place, *batches)
    names = found.participants()
    if only is not None and found.each and only not in names:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"No record of these epochs names a sink {only!r}. They name: "
            f"{', '.join(map(repr, names)) or 'none'}.",
        )
    evidence: list[Evidence] = []
    for name in names if only is None else [only] if found.each else []:
        tick(name)
        evidence += _of_sink(place, targets, name, found.each)
    return found, evidence


def _of_sink(
    place: QueryPlace, targets: QueryTargets, name: str, each: Sequence[Promise]
) -> list[Evidence]:
    target = targets.named(name)
    if target is None:
        return [unknowable(promise, name, NOT_GIVEN) for promise in each]

    try:
        with closing(inspector_of(target, place)) as inspector:
            participant = inspector.participant()

            def onwards() -> Sequence[Promise]:
                return _own(participant, read_promises(place, each[0].batch_id, None).each)

            asked = _own(participant, each)
            found = [unknowable(one, name, OTHER_KIND) for one in each if one not in asked]
            found += inspector.evidence(asked, onwards) if asked else ()
            found.sort(key=attrgetter("batch_id"))
            if participant.remembers:
                return [*found, *_unknown_to_the_log(place, name, participant.last_batch())]
            return [*found, *_without_a_record(place, participant)]
    except (ExactumError, OSError, ValueError) as error:
        why = f"it could not be asked: {error}".rstrip(".")
        return [unknowable(promise, name, why) for promise in each]


def _own(participant: Participant, promises: Sequence[Promise]) -> list[Promise]:
    """Without those of a sink of another kind, which had the name then."""

    def is_own(promise: Promise) -> bool:
        every = (*promise.record.prepared, *promise.superseded)
        named = [p for p in every if p.participant == participant.name]
        return len(participant.own(named)) == len(named)

    return list(filter(is_own, promises))


def _unknown_to_the_log(place: QueryPlace, name: str, last: int | None) -> list[Evidence]:
    """The last batch that a target has, where no record is of it: it was decided by a log that is
    not this one. What a driver that lives has decided meanwhile is on record by now.
    """
    done = place.finished()
    if last is None or (done is not None and last <= done):
        return []  # without a record it is among ``unrecorded``
    if commit_in_force(read_batch(place, last)) is not None:
        return []
    why = f"the target has this batch, and the decision log does not know of it: {OLDER}"
    return [Evidence(last, name, 0, None, Finding.EXTRA, "marker", why)]


def _without_a_record(place: QueryPlace, participant: Participant) -> list[Evidence]:
    """What a target without a marker has committed near the batch at hand."""
    begins = place.first_unfinished()
    unknown = read_unknown(place, begins, participant)
    if not unknown:
        return []
    why = f"{len(unknown)} committed transactions are of no decision: {OLDER}"
    return [Evidence(begins, participant.name, 0, None, Finding.EXTRA, "transactions", why)]


def _status(evidence: Iterable[Evidence]) -> ExitStatus:
    """CANNOT_TELL also where there was nothing to look at."""
    findings = {each.finding for each in evidence}
    if findings - {Finding.EXACT, Finding.UNKNOWABLE}:
        return ExitStatus.NEEDS_PERSON
    return ExitStatus.FINE if findings == {Finding.EXACT} else ExitStatus.CANNOT_TELL


def _leaves_open(promises: Promises, first: int | None, last: int | None) -> bool:
    """Whether something that was asked for has no record. By default all is verified that is on
    record; who names a batch wants to know of it.
    """
    named_and_forgotten = first is not None and promises.forgotten_below is not None
    named_and_undecided = last is not None and last in promises.undecided
    return bool(
        promises.unrecorded
        or named_and_forgotten
        or named_and_undecided
        or promises.not_begun is not None
    )


# ---- what is shown ---------------------------------------------------------------------------


def _show(evidence: Sequence[Evidence], promises: Promises) -> None:
    """A row for each run of epochs that are alike, then the sum in a sentence."""
    rows: list[tuple[str | int | Cell, ...]] = []
    notes: list[str] = []
    for _, group in groupby(evidence, _alike):
        alike = list(group)
        first, last = alike[0], alike[-1]
        batches = f"{first.batch_id}" if len(alike) == 1 else f"{first.batch_id} to {last.batch_id}"
        found = "-" if first.found is None else sum(e.found or 0 for e in alike)
        word = Cell(first.text, COLOURS[first.finding.value])
        rows.append((first.sink, batches, sum(e.promised for e in alike), found, word, first.by))
        if first.why:
            notes.append(f"{first.sink}, micro-batch {batches}: {first.why}.")
    if rows:
        render.show_table(("sink", "micro-batch", "promised", "found", "finding", "by"), rows)
    for line in (*notes, *_lines(evidence, promises)):
        click.echo(line)


def _alike(each: Evidence) -> tuple[object, ...]:
    """Epochs of one sink that follow one another, are found the same and say the same of why; what
    has numbers of its own stands alone.
    """
    alone = each.found is not None and each.finding.value in ("missing", "extra", "different")
    return each.sink, each.finding, each.by, each.why, each.batch_id if alone else None


def _lines(evidence: Sequence[Evidence], promises: Promises) -> Iterator[str]:
    if promises.undecided:
        yield (
            f"Not decided, so nothing is promised: {_listed(promises.undecided)}. Their input is "
            "read again by the next start."
        )
    if promises.unrecorded:
        yield (
            f"No record, although Spark has finished them: {_listed(promises.unrecorded)}. They "
            "ran under at_least_once, with a sink of Spark's, or in the query that this is a fork "
            "of; or records of the decision log are gone, or it lies elsewhere (--decision-log): "
            "nothing is known of what they promised."
        )
    if promises.forgotten_below is not None and promises.forgotten_below > 0:
        yield (
            f"Below batch {promises.forgotten_below} the decision log keeps no records, as Spark "
            "keeps none of its own: nothing is known of what they promised."
        )
    if promises.not_begun is not None:
        yield f"From batch {promises.not_begun} on the query has begun none yet."
    counts = Counter(each.finding.value for each in evidence)
    text = ", ".join(f"{counts[word]:,} {word}" for word in COLOURS if counts[word])
    yield f"Epochs by sink: {text or 'none'}."


def _listed(batches: Sequence[int]) -> str:
    shown = ", ".join(str(batch_id) for batch_id in batches[:10])
    return f"batch {shown}" + (f" and {len(batches) - 10} more" if len(batches) > 10 else "")
