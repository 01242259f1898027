"""What ``exactum transactions find-hanging`` shows, and does where it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from exactum.kafka.requests.operator_requests import MarkerRefused, OperatorRequests
from exactum.kafka.transactions.hanging import HangingTransaction, HeldPartitions, find_hanging

Ask = Callable[[str], bool]


def search(
    admin: OperatorRequests,
    topics: Sequence[str],
    *,
    idle_ms_min: int,
    abort_them: bool,
    ask: Ask | None,
    quiet: bool,
) -> tuple[dict[str, Any], int]:
    """(for JSON, exit status). ``ask``: before each marker; None: it was said beforehand.

    Status 0: there is none, or none any more; 1: one is there; 2: none was found, and not
    everything could be looked at.
    """
    found = find_hanging(admin, topics, idle_ms_min=idle_ms_min)
    if not quiet:
        _show(found)
    aborted: list[HangingTransaction] = []
    refused: list[str] = []
    for each in found.hanging if abort_them else ():
        if ask is not None and not ask(f"Write an abort marker into {_named(each)}?"):
            continue
        try:
            admin.write_abort_marker(each.producer)
            aborted.append(each)
        except MarkerRefused as error:
            refused.append(str(error))
    left = [each for each in found.hanging if each not in aborted]
    if aborted:
        theirs = sorted({each.producer.partition[0] for each in aborted})
        again = find_hanging(admin, theirs, idle_ms_min=idle_ms_min)
        still = {each.producer.partition for each in again.hanging}
        left += [each for each in aborted if each.producer.partition in still]
    if not quiet:
        for each in aborted:
            click.echo(f"aborted: {_named(each)}")
        for text in refused:
            click.secho(text, fg="red", err=True)
    value = {
        "partitions_looked_at": found.looked_at,
        "partitions_held": [f"{topic}-{index}" for topic, index in found.held],
        "hanging": [_value(each) for each in found.hanging],
        "aborted": [_named(each) for each in aborted],
        "refused": refused,
        "unseen": list(found.unseen),
        "too_young_to_judge": found.young,
    }
    return value, 1 if left else 2 if found.unseen else 0


def _show(found: HeldPartitions) -> None:
    click.echo(
        f"{found.looked_at} partitions looked at; {len(found.held)} have an open transaction; "
        f"{len(found.hanging)} of these transactions are nobody's"
    )
    for each in found.hanging:
        hidden = each.high_watermark - each.last_stable_offset
        click.secho(f"\n{_named(each)}", bold=True)
        click.echo(f"  the coordinator: {each.coordinator_says}")
        click.echo(f"  transactional id: {each.transactional_id or 'not known'}")
        click.echo(
            f"  hides {hidden:,} offsets from read_committed readers, from "
            f"{each.last_stable_offset:,} on"
        )
        click.secho(
            "  -> nobody will end it: look who wrote there, then 'find-hanging --abort'",
            fg="yellow",
        )
    if found.young:
        click.echo(f"{found.young} more look like it, and were written to a short time ago: wait")
    for text in found.unseen:
        click.secho(f"could not be looked at: {text}", fg="red", err=True)


def _named(each: HangingTransaction) -> str:
    topic, index = each.producer.partition
    return (
        f"{topic}-{index} from offset {each.producer.start_offset}: producer "
        f"{each.producer.producer_id}, epoch {each.producer.producer_epoch}"
    )


def _value(each: HangingTransaction) -> dict[str, Any]:
    producer = each.producer
    return {
        "topic": producer.partition[0],
        "partition": producer.partition[1],
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "start_offset": producer.start_offset,
        "last_write_ms": producer.last_write_ms,
        "transactional_id": each.transactional_id,
        "coordinator_says": each.coordinator_says,
        "last_stable_offset": each.last_stable_offset,
        "high_watermark": each.high_watermark,
    }
