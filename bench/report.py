"""Min, median and max, and ratios round by round."""

from __future__ import annotations

import platform
import statistics
import subprocess
from collections.abc import Sequence
from importlib import metadata

from rich.console import Console
from rich.table import Table

console = Console(width=150, highlight=False)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """``median (min to max)``."""
    return (
        f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to "
        f"{max(values):,.{digits}f})"
    )


def ratios(values: Sequence[float], base: Sequence[float]) -> str:
    """The ratio to ``base`` in the same round, as ``spread``."""
    return spread([v / b for v, b in zip(values, base, strict=True)])


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    drawn = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        drawn.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        drawn.add_row(*row)
    console.print(drawn)


def machine() -> str:
    versions = ", ".join(
        f"{name} {metadata.version(name)}"
        for name in ("exactum", "pyspark", "confluent-kafka", "pyarrow")
    )
    with open("/proc/cpuinfo") as lines:
        model = next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
            "unknown",
        )
    with open("/proc/cpuinfo") as lines:
        cores = sum(line.startswith("processor") for line in lines)
    return (
        f"{cores} cores of {model}, Python {platform.python_version()}, {versions}; broker on the "
        "same machine"
    )


def commit() -> str:
    """Which code is measured: the commit of the work tree, short, with a ``+`` where files differ
    from it; empty outside a repository.
    """
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    return asked.stdout.strip()
