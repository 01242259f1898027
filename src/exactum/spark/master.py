"""What Spark's master says about where tasks run."""

from __future__ import annotations


def is_one_process(master: str) -> bool:
    """Whether tasks run in the driver's own JVM, as with ``local[2]``."""
    return master.startswith("local") and not master.startswith("local-cluster")
