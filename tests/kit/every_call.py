"""The calls at which a sweep of a test's own plays its fault."""

from __future__ import annotations

import os

from exactum.testing.faults import EVERY_VARIABLE


def every_call(below: int) -> range:
    """1, 2, ...; under ``EXACTUM_SWEEP_EVERY`` every n-th one. For tests marked
    ``sweep``: ``make deep`` plays these whole.
    """
    every = int(os.environ.get(EVERY_VARIABLE, "1"))
    return range(1, below, every)
