"""The last line that a user sees of a query that failed: what exactum said, and nothing of Spark's.

An error of exactum reaches the script inside Spark's own, in the middle of its text: a Java trace
stands above it and the query's plan below. Where such an error ends the script, its message is
printed once more at the very end. So is what Spark itself says of a checkpoint that cannot be made,
or whose topics it does not find: there Spark's own advice loses records.
"""

from __future__ import annotations

import atexit
import re
import sys

from exactum.errors import CheckpointRefused, ExactumError, SettingRefused

ERRORS_MAX = 20
"""Errors that are remembered, of as many queries."""
_REFUSED = re.compile(
    r"\[(SOURCE_START|TOPIC_CHANGED)\] exactum refuses .*?"
    r"(?:choose another start=|start again when it has ended|Nothing was written\.)"
)
"""What Spark was given in place of offsets, or was thrown by exactum's source, before any batch."""
_LOST = "Some data may have been lost because they are not available in Kafka any more"
_REASON = re.compile(r"^Reason: (.*?)\.?(?: SQLSTATE.*)?$", re.MULTILINE)
_UNMADE = re.compile(
    r"^An error occurred while calling o\d+\.start\.\n: \S+: "
    r"(?:mkdir of (?:file:)?(?P<made>.+) failed"
    r"|Destination exists and is not a directory: (?P<file>.+)"
    r"|(?P<denied>.+) \(Permission denied\))$",
    re.MULTILINE,
)


def plainly(spoken: str) -> str | None:
    """What Spark has said of a checkpoint, or has handed on from exactum, in one sentence and with
    what to do; None where it has said something else.
    """
    refused = _REFUSED.search(spoken)
    if refused is not None:
        kind = SettingRefused if refused[1] == "SOURCE_START" else CheckpointRefused
        return f"{kind.__module__}.{kind.__name__}: {refused[0]}"
    unmade = _UNMADE.search(spoken)
    if unmade is not None:
        place = next(filter(None, unmade.groups()))
        return (
            f"The query was not started: Spark cannot make or write {place}. Give it a "
            "checkpointLocation in a folder that this user may write. Nothing was written."
        )
    if _LOST not in spoken:
        return None
    reason = _REASON.search(spoken)
    return (
        f"Spark does not find in Kafka what the checkpoint is to read next: "
        f"{reason[1] if reason else 'it does not say what'}. Is the checkpoint that of this query, "
        "and the Kafka the one that it has read? Were topics deleted, recreated, or cleaned by "
        "retention? Then start with a new checkpointLocation. failOnDataLoss=False leaves out what "
        "is missing, and reads again what comes back. Nothing of this batch was written. "
        "(docs/misuse.md: another topic)"
    )


class FinalError:
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
        errors, and nothing that Spark says of a checkpoint.
        """
        shown = str(uncaught)
        for error in reversed(self._errors):
            if error is not uncaught and str(error) in shown:
                return f"{type(error).__module__}.{type(error).__name__}: {error}"
        return plainly(shown)

    def _say(self) -> None:
        # Set by Python where nobody caught the error that ends the script, when it has printed it.
        uncaught = getattr(sys, "last_value", None)
        said = None if uncaught is None else self.text(uncaught)
        if said is not None:
            sys.stderr.write(f"\n{said}\n")


FINAL_ERROR = FinalError()
"""Of this process, as its end is."""
