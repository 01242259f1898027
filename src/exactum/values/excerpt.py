"""The beginning of a long text, for a message. Knows neither pyarrow nor Spark, so that anything
may import it.
"""

from __future__ import annotations


def cut(text: str, characters_max: int) -> str:
    """The text as it is, or its first ``characters_max`` characters and three dots."""
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."
