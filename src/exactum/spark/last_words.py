"""The last line that a user sees of a query that failed: what exactum said, and nothing of Spark's.

An error of exactum reaches the script inside Spark's own, in the middle of its text: a Java trace
stands above it and the query's plan below. Where such an error ends the script, its message is
printed once more at the very end. So is what Spark itself says of topics that it does not find, in
exactum's words: Spark's own advice loses records.
"""

from __future__ import annotations

import atexit
import re
import sys

from exactum.errors import ExactumError

ERRORS_MAX = 20
"""Errors that are remembered, of as many queries."""
_LOST = "Some data may have been lost because they are not available in Kafka any more"
_REASON = re.compile(r"^Reason: (.*?)\.?(?: SQLSTATE.*)?$", re.MULTILINE)


def lost(spoken: str) -> str | None:
    """What to say where Spark does not find in Kafka what the checkpoint names; None where
    ``spoken`` is something else.
    """
    if _LOST not in spoken:
        return None
    reason = _REASON.search(spoken)
    return (
        f"Spark does not find in Kafka what the checkpoint is to read next: "
        f"{reason[1] if reason else 'it does not say what'}. Is the checkpoint that of this query, "
        "and the Kafka the one that it has read? Were topics deleted, recreated, or cleaned by "
        "retention? Then start with a new checkpointLocation. failOnDataLoss=False leaves out what "
        "is missing. Nothing of this batch was written. (docs/misuse.md: another topic)"
    )


class LastWords:
    """The errors that queries of this process stopped with."""

    def __init__(self) -> None:
        self._errors: list[ExactumError] = []
        self._registered = False

    def listen(self) -> None:
        """Say something at the end of the process, if it ends because of a query. Idempotent."""
        if not self._registered:
            self._registered = True
            atexit.register(self._say)

    def remember(self, error: ExactumError) -> None:
        """To be said at the end of the process, if it ends because of it."""
        self.listen()
        self._errors = [*self._errors, error][-ERRORS_MAX:]

    def text(self, uncaught: BaseException) -> str | None:
        """What is to be said after Python has printed ``uncaught``; None where it is none of these
        errors, and nothing that Spark says of topics.
        """
        shown = str(uncaught)
        for error in reversed(self._errors):
            if error is not uncaught and str(error) in shown:
                return f"{type(error).__module__}.{type(error).__name__}: {error}"
        return lost(shown)

    def _say(self) -> None:
        # Set by Python where nobody caught the error that ends the script, when it has printed it.
        uncaught = getattr(sys, "last_value", None)
        said = None if uncaught is None else self.text(uncaught)
        if said is not None:
            sys.stderr.write(f"\n{said}\n")


LAST_WORDS = LastWords()
"""Of this process, as its end is."""
