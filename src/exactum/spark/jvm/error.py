"""What a call into the JVM raises when Spark does not answer, or has no such part."""

from __future__ import annotations

from py4j.protocol import Py4JError

JvmError = Py4JError
_THROWN = "\n: "
"""Before what was thrown, in the text of an error that Java raised; its trace is below that."""


def reason_of(error: Exception) -> str:
    """What was thrown, in one line, without the trace."""
    text = str(error)
    return next(iter(text.rpartition(_THROWN)[2].splitlines()), type(error).__name__)
