"""Numbers of options that are neither ``nan`` nor ``inf``: both compare with every bound as if they
were within it, and a time until then never comes.
"""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within bounds, which is one."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of this kind.", param, ctx)
        return number
