"""A query's last failure in words: how it ended, and what to do then."""

from __future__ import annotations

from exactum.monitor.query_stats import LastFailure

LETTERS_MAX = 300
"""Of the text of an error."""


def ending_of(failure: LastFailure) -> str:
    """``It ended with Unavailable: the broker ...``, in one line and with a full stop."""
    text = " ".join((failure.reason or failure.error or "an error that nobody told").split())
    if text.startswith("it "):  # as a supervisor tells of a process
        text = f"I{text[1:]}"
    else:
        kind = failure.error.partition(":")[0]
        text = f"It ended with {text if kind in text else f'{kind}: {text}'}"
    text = text if len(text) <= LETTERS_MAX else f"{text[:LETTERS_MAX]} ..."
    return text if text.endswith(".") else f"{text}."


def advice_after(disposition: str, *, is_alive: bool = False) -> str:
    """What to do after an error of this disposition (``errors.Disposition``).

    ``is_alive``: a process runs the query. Where none does, who has fenced the last one may have
    been an operator, and nobody would come to run it.
    """
    if disposition == "fenced" and is_alive:
        return "Leave it: a newer run has the query. Stop that one first if this one is wanted."
    if disposition == "fenced":
        return (
            "Make sure that no other machine runs it, then start it again: a newer run may have "
            "taken it over, or an operator by exactum transactions abort."
        )
    if disposition == "halt":
        return "Change what the error says, then start it again."
    return "Start it again; exactum run does that by itself."
