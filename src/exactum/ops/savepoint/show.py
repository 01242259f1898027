"""A savepoint as a person reads it: what ``exactum savepoint inspect`` prints."""

from __future__ import annotations

import json

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table

from exactum.checkpoint.savepoint.manifest import Manifest


def shown(manifest: Manifest) -> RenderableType:
    """Tables of what it is, where each source continues, and what state it has."""
    facts = Table(show_header=False, box=None)
    for name, value in (
        ("savepoint", manifest.id),
        ("made", f"{manifest.created_at} on {manifest.host}"),
        ("by", f"exactum {manifest.exactum}, Spark {manifest.spark or 'of an unknown version'}"),
        ("query", manifest.query_id),
        ("epoch", f"{manifest.batch_id:,}"),
        ("checkpoint", manifest.checkpoint),
        (
            "decision log",
            "in the checkpoint" if manifest.decision_log == "checkpoint" else "elsewhere",
        ),
        ("files", f"{len(manifest.files):,}, {decimal(manifest.size_bytes)}"),
    ):
        facts.add_row(f"[bold]{name}", value)
    parts: list[RenderableType] = [facts, "", _sources(manifest)]
    if manifest.operators:
        parts += ["", _state(manifest)]
    return Group(*parts)


def _sources(manifest: Manifest) -> Table:
    table = Table("source", "partition", "goes on at", title="Sources", title_justify="left")
    for number, text in enumerate(manifest.sources):
        for partition, offset in _offsets(text):
            table.add_row(str(number), partition, offset)
    return table


def _offsets(text: str | None) -> list[tuple[str, str]]:
    """(partition, offset) of a Kafka source; of another one, its offset as it is."""
    if text is None:
        return [("", "(nothing read yet)")]
    value = json.loads(text) if text.startswith("{") else text
    if isinstance(value, dict) and value and all(isinstance(each, dict) for each in value.values()):
        return [
            (f"{topic}-{p}", f"{offset:,}")
            for topic in sorted(value)
            for p, offset in sorted(value[topic].items())
        ]
    return [("", text)]


def _state(manifest: Manifest) -> Table:
    table = Table(
        "operator", "name", "partitions", "stores", "size", title="State", title_justify="left"
    )
    for each in manifest.operators:
        table.add_row(
            str(each.number),
            each.name,
            str(each.partitions),
            str(each.stores),
            decimal(each.size_bytes),
        )
    return table
