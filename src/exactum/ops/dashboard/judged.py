"""How a query is, in one word: what ``exactum status`` says, and the colour of it."""

from __future__ import annotations

from dataclasses import dataclass

from exactum.monitor.verdict import Judgement, Verdict, verdict_of
from exactum.ops.dashboard.picture import QueryPicture


@dataclass(frozen=True)
class Judged:
    """``tone`` names the colour: down, doubt, stalled, slow, held, ok or ended."""

    word: str
    tone: str
    reason: str
    todo: str = ""


TONES = {
    Verdict.DOWN: "down",
    Verdict.IN_DOUBT: "doubt",
    Verdict.STALLED: "stalled",
    Verdict.SLOW: "slow",
    Verdict.HELD_UPSTREAM: "held",
    Verdict.OK: "ok",
}
WORST_FIRST = (*(TONES[verdict] for verdict in Verdict), "ended")
NOT_BEGUN = Judged("NOT BEGUN", "ended", "No query has begun on this checkpoint.")
NOT_KNOWN = Judged("NOT KNOWN", "ended", "There is no history and no run to judge by.")


def judged(picture: QueryPicture) -> Judged:
    """The same verdict as everywhere else."""
    if picture.judgement is not None:
        return _shown(picture.judgement)
    if not picture.stats.query_id:
        return NOT_BEGUN
    if picture.stats.heard_ms is None and not picture.living:
        return NOT_KNOWN
    return _shown(verdict_of(picture.stats, picture.now_ms))


def _shown(found: Judgement) -> Judged:
    return Judged(found.verdict.value, TONES[found.verdict], found.reason, found.todo)
