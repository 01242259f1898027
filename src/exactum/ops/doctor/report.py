"""The findings as a person or a program reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exactum.ops.doctor.finding import DoctorFinding, Level

COLOURS = {
    Level.OK: "green",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
    Level.UNKNOWN: "magenta",
}


def table(findings: Sequence[DoctorFinding]) -> Table:
    """For a terminal."""
    shown = Table(show_lines=True, expand=True)
    shown.add_column("area", overflow="fold", ratio=2)
    shown.add_column("level", no_wrap=True)
    shown.add_column("found", overflow="fold", ratio=6)
    shown.add_column("how to mend", overflow="fold", ratio=4)
    for (area, level), group in groupby(findings, lambda each: (each.area, each.level)):
        if level is Level.OK:  # what is well takes little room
            told = Text("\n".join(each.what for each in group))
            shown.add_row(Text(area), Text(level.value, style=COLOURS[level]), told, "")
            continue
        for finding in group:
            told = Text(finding.what)
            if finding.why:
                told.append(f"\n{finding.why}", style="dim")
            name = Text(level.value, style=COLOURS[level])
            shown.add_row(Text(area), name, told, Text(finding.mend))
    return shown


def line(finding: DoctorFinding) -> str:
    """For a pipe: one line, whatever is in it."""
    parts = [finding.what, finding.why, finding.mend and f"Mend: {finding.mend}"]
    text = " ".join(" ".join(part.split()) for part in parts if part)
    return f"{finding.level.value:<7} {finding.area}: {text}"


def summary(findings: Sequence[DoctorFinding]) -> str:
    counts = Counter(finding.level for finding in findings)
    told = [f"{counts[level]} {level.value}" for level in Level if counts[level]]
    return ", ".join(told) or "nothing was looked at"


def as_json(findings: Sequence[DoctorFinding], status: int) -> str:
    """One object; ``status`` is the exit status."""
    return json.dumps(
        {"status": status, "findings": [finding.to_json() for finding in findings]}, indent=1
    )


def show(findings: Sequence[DoctorFinding], console: Console) -> None:
    """All of them, and how many of each level. Where all is well in an area, a line says so."""
    if console.is_terminal:
        console.print(table(findings))
        console.print(summary(findings), highlight=False)
        return
    for finding in findings:
        console.file.write(line(finding) + "\n")
    console.file.write(summary(findings) + "\n")
