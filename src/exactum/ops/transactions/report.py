"""Findings as text and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from exactum.ops.transactions.finding import TransactionFinding
from exactum.ops.transactions.query_look import QueryLook, Trouble
from exactum.protocol.model import DecisionRecord

SHOWN_MAX = 5
"""How many transactions of one group are named."""


def finding_value(finding: TransactionFinding, now_ms: int) -> dict[str, Any]:
    """For JSON."""
    view = finding.view
    return {
        "sink": view.participant,
        "identity": view.identity,
        "state": view.state.value,
        "query_id": view.query_id,
        "incarnation": view.incarnation,
        "batch_id": view.batch_id,
        "attempt": view.attempt,
        "rows": view.rows,
        "began_ms": view.began_ms,
        "age_ms": view.age_ms(now_ms),
        "timeout_ms": view.timeout_ms,
        "left_ms": view.left_ms(now_ms),
        "on_record": finding.on_record.value,
        "owner": finding.owner.value,
        "do": finding.do,
        "needs_person": finding.needs_person,
        "details": list(view.details),
    }


def trouble_value(trouble: Trouble) -> dict[str, str]:
    return {"place": trouble.place, "why": trouble.why}


def look_value(look: QueryLook) -> dict[str, Any]:
    """For JSON."""
    now_ms = int(time.time() * 1000)
    return {
        "query_id": look.place.query_id,
        "checkpoint": str(look.place.folder),
        "living_runs": [run.incarnation for run in look.living],
        "transactions": [finding_value(finding, now_ms) for finding in look.findings],
        "troubles": [trouble_value(trouble) for trouble in look.troubles],
        "status": look.status,
    }


def show_look(look: QueryLook) -> None:
    """For a person, on stdout."""
    click.echo(str(look.place))
    for run in look.living:
        click.echo(f"lives: {run}")
    if not look.living:
        click.echo("no run of it lives here")
    show_findings(look.findings)
    show_troubles(look.troubles)
    if not look.findings and not look.troubles:
        click.echo("nothing is open, and nothing that is decided is unfinished")


def show_findings(findings: Sequence[TransactionFinding]) -> None:
    """Groups of what is alike: where it stands, its names, what to do."""
    now_ms = int(time.time() * 1000)
    groups: dict[tuple[Any, ...], list[TransactionFinding]] = {}
    for finding in findings:
        view = finding.view
        key = (
            view.participant,
            view.state,
            finding.on_record,
            finding.owner,
            view.incarnation,
            view.batch_id,
            view.attempt,
            finding.do,
        )
        groups.setdefault(key, []).append(finding)
    for group in groups.values():
        click.echo("")
        click.secho(_heading(group, now_ms), bold=True)
        for finding in group[:SHOWN_MAX]:
            click.echo(f"  {finding.view.identity}")
        if len(group) > SHOWN_MAX:
            click.echo(f"  and {len(group) - SHOWN_MAX} more (--json has all)")
        click.secho(f"  -> {group[0].do}", fg="yellow" if group[0].needs_person else None)


def show_one(finding: TransactionFinding, record: DecisionRecord | None) -> None:
    """Everything that is known of it."""
    view = finding.view
    now_ms = int(time.time() * 1000)
    click.secho(view.identity, bold=True)
    for name, value in (
        ("sink", view.participant),
        ("query", view.query_id),
        ("whose", finding.owner.value),
        ("incarnation", view.incarnation),
        ("state", view.state.value),
        ("age", _duration(view.age_ms(now_ms))),
        ("time left", _duration(view.left_ms(now_ms))),
        ("micro-batch", view.batch_id),
        ("attempt", view.attempt),
        ("rows", view.rows),
        ("decision log", finding.on_record.value),
    ):
        if value is not None:
            click.echo(f"  {name:<14}{value}")
    for detail in view.details:
        click.echo(f"  {'':<14}{detail}")
    if record is not None:
        click.echo(
            f"  {'record':<14}{record.decision.value} of {record.epoch}, attempt {record.attempt}, "
            f"by incarnation {record.incarnation}"
        )
        for number, end in enumerate(record.offsets.end):
            click.echo(f"  {'':<14}source {number} up to {end}")
    click.secho(f"  -> {finding.do}", fg="yellow" if finding.needs_person else None)


def show_troubles(troubles: Iterable[Trouble]) -> None:
    for trouble in troubles:
        click.secho(f"\n{trouble.place} could not be looked at: {trouble.why}", fg="red", err=True)


def _heading(group: Sequence[TransactionFinding], now_ms: int) -> str:
    first = group[0]
    view = first.view
    ages = [age for each in group if (age := each.view.age_ms(now_ms)) is not None]
    left = [ms for each in group if (ms := each.view.left_ms(now_ms)) is not None]
    rows = [each.view.rows for each in group if each.view.rows is not None]
    parts = [
        view.participant or "unknown sink",
        f"{len(group)} {view.state.value}",
        f"for {_duration(max(ages))}" if ages else "",
        (f"{_duration(min(left))} left" if min(left) > 0 else "past its timeout") if left else "",
        f"{sum(rows):,} rows" if rows else "",
        ""
        if view.batch_id is None
        else f"micro-batch {view.batch_id}"
        + ("" if view.attempt is None else f", attempt {view.attempt}"),
        first.on_record.value,
        f"of {first.owner.value}" + (f" ({view.incarnation})" if view.incarnation else ""),
    ]
    return "; ".join(part for part in parts if part)


def _duration(ms: int | None) -> str | None:
    """As a person says it: 850 ms, 12 s, 7 min, 3 h, 2 days."""
    if ms is None:
        return None
    for unit, size_ms, most in (
        ("ms", 1, 1_000),
        ("s", 1_000, 120_000),
        ("min", 60_000, 7_200_000),
    ):
        if ms < most:
            return f"{ms // size_ms} {unit}"
    return f"{ms // 3_600_000} h" if ms < 172_800_000 else f"{ms // 86_400_000} days"
