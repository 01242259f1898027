"""A span of time as a person says it: 15 min, 7 d."""

from __future__ import annotations


def span(seconds: float) -> str:
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"
