"""What verifying found, on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactum.ops.verify.evidence import Evidence, Finding
from exactum.ops.verify.promise import Promises

STYLES = {
    Finding.EXACT: "green",
    Finding.MISSING: "bold red",
    Finding.EXTRA: "bold red",
    Finding.DIFFERENT: "bold red",
    Finding.IN_DOUBT: "yellow",
    Finding.UNKNOWABLE: "cyan",
}


def show(console: Console, evidence: Sequence[Evidence], promises: Promises) -> None:
    """A row for each run of epochs that are alike, then the sum in a sentence."""
    table = Table(box=None)
    for heading in ("sink", "micro-batch", "promised", "found", "finding", "by"):
        numbers = heading in ("promised", "found")
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    notes: list[str] = []
    for alike in _alike(evidence):
        first, last = alike[0], alike[-1]
        batches = f"{first.batch_id}"
        if len(alike) > 1:
            batches += f" to {last.batch_id}"
        found = None if first.found is None else sum(e.found or 0 for e in alike)
        table.add_row(
            Text(first.participant),
            batches,
            f"{sum(e.promised for e in alike):,}",
            "-" if found is None else f"{found:,}",
            Text(first.text, STYLES[first.finding]),
            first.by,
        )
        if first.why:
            notes.append(f"{first.participant}, micro-batch {batches}: {first.why}.")
    console.print(table)
    for note in notes:
        console.print(Text(note), soft_wrap=True)
    for line in _lines(evidence, promises):
        console.print(Text(line), soft_wrap=True)


def _alike(evidence: Sequence[Evidence]) -> list[list[Evidence]]:
    """Epochs of one sink that follow one another, are found the same and say the same of why; what
    has numbers of its own stands alone.
    """

    def key(each: Evidence) -> tuple[object, ...]:
        alone = each.finding in (Finding.MISSING, Finding.EXTRA, Finding.DIFFERENT)
        return each.participant, each.finding, each.by, each.why, each.batch_id if alone else None

    return [list(group) for _, group in groupby(evidence, key)]


def _lines(evidence: Sequence[Evidence], promises: Promises) -> list[str]:
    lines = []
    if promises.undecided:
        lines.append(
            f"Not decided, so nothing is promised: {_listed(promises.undecided)}. Their input is "
            "read again by the next start."
        )
    if promises.unrecorded:
        lines.append(
            f"No record, although Spark has finished them: {_listed(promises.unrecorded)}. They "
            "ran under at_least_once or with a sink of Spark's, or records of the decision log are "
            "gone, or it lies elsewhere (--decision-log): nothing is known of what they promised."
        )
    if promises.forgotten_below is not None and promises.forgotten_below > 0:
        lines.append(
            f"Below batch {promises.forgotten_below} the decision log keeps no records, as Spark "
            "keeps none of its own: nothing is known of what they promised."
        )
    if promises.not_begun is not None:
        lines.append(f"From batch {promises.not_begun} on the query has begun none yet.")
    counts = {
        finding: sum(1 for each in evidence if each.finding is finding) for finding in Finding
    }
    text = ", ".join(f"{n:,} {finding.value}" for finding, n in counts.items() if n)
    lines.append(f"Epochs by sink: {text or 'none'}.")
    return lines


def _listed(batches: Sequence[int]) -> str:
    shown = ", ".join(str(batch_id) for batch_id in batches[:10])
    return f"batch {shown}" + (f" and {len(batches) - 10} more" if len(batches) > 10 else "")


def as_json(query_id: str, evidence: Sequence[Evidence], promises: Promises, status: int) -> str:
    """One object. ``found`` is null where nobody can count."""
    return json.dumps(
        {
            "query_id": query_id,
            "status": status,
            "undecided": list(promises.undecided),
            "unrecorded": list(promises.unrecorded),
            "forgotten_below": promises.forgotten_below,
            "not_begun": promises.not_begun,
            "epochs": [
                {
                    "batch_id": each.batch_id,
                    "sink": each.participant,
                    "promised": each.promised,
                    "found": each.found,
                    "finding": each.finding.value,
                    "by": each.by,
                    "why": each.why,
                }
                for each in evidence
            ],
        },
        indent=1,
    )
