"""The last line that a user sees of a query that failed: what exactum said, and nothing of Spark's.

An error of exactum reaches the script inside Spark's own, in the middle of its text: a Java trace
stands above it and the query's plan below. Where such an error ends the script, its message is
printed once more at the very end.
"""

from __future__ import annotations

import atexit
import sys

from exactum.errors import ExactumError

ERRORS_MAX = 20
"""Errors that are remembered, of as many queries."""


class LastWords:
    """The errors that queries of this process stopped with."""

    def __init__(self) -> None:
        self._errors: list[ExactumError] = []
        self._registered = False

    def remember(self, error: ExactumError) -> None:
        """To be said at the end of the process, if it ends because of it."""
        if not self._registered:
            self._registered = True
            atexit.register(self._say)
        self._errors = [*self._errors, error][-ERRORS_MAX:]

    def text(self, uncaught: BaseException) -> str | None:
        """What is to be said after Python has printed ``uncaught``; None where it is none of these
        errors.
        """
        shown = str(uncaught)
        for error in reversed(self._errors):
            if error is not uncaught and str(error) in shown:
                return f"{type(error).__module__}.{type(error).__name__}: {error}"
        return None

    def _say(self) -> None:
        # Set by Python where nobody caught the error that ends the script, when it has printed it.
        uncaught = getattr(sys, "last_value", None)
        said = None if uncaught is None else self.text(uncaught)
        if said is not None:
            sys.stderr.write(f"\n{said}\n")


LAST_WORDS = LastWords()
"""Of this process, as its end is."""
