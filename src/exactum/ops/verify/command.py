"""``exactum verify``: the command."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from exactum.ops.targets.options import JSON, QueryOptions, could_not_tell, query_options

if TYPE_CHECKING:
    from exactum.ops.verify.promise import Promises

DOUBT_LOOKS_MAX = 4
DOUBT_PAUSE_S = 1.0
"""An epoch that a living driver is just committing is looked at again, so often."""


@click.command()
@query_options
@click.option("--from", "first", type=click.IntRange(min=0), help="First micro-batch.")
@click.option("--to", "last", type=click.IntRange(min=0), help="Last micro-batch.")
@click.option("--sink", "only", metavar="NAME", help="This sink alone.")
@JSON
@could_not_tell
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

    from exactum.ops.verify import report
    from exactum.ops.verify.evidence import Finding, exit_status
    from exactum.ops.verify.range_look import RangeLook
    from exactum.ops.verify.verification import EpochRange

    err = Console(stderr=True, highlight=False)
    look = RangeLook(options, only)
    promises, evidence = look.at(EpochRange(first, last), err)
    for _ in range(DOUBT_LOOKS_MAX):
        doubted = [each.batch_id for each in evidence if each.finding is Finding.IN_DOUBT]
        if not doubted:
            break
        time.sleep(DOUBT_PAUSE_S)
        _, again = look.at(EpochRange(min(doubted), max(doubted)), None)
        newer = {(each.batch_id, each.participant, each.by): each for each in again}
        evidence = [newer.get((e.batch_id, e.participant, e.by), e) for e in evidence]
    status = exit_status(evidence) or (2 if _leaves_open(promises, first, last) else 0)
    if as_json:
        click.echo(report.as_json(look.query_id, evidence, promises, status))
    else:
        report.show(Console(highlight=False), evidence, promises)
    sys.exit(status)


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
