"""Rows of which only a target knows whether it takes them: the driver has them judged when all
tasks have prepared, and puts those aside that are refused, as a task does with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exactum.protocol import resolve
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant, judges
from exactum.protocol.participants import Parallel
from exactum.protocol.sink import DEAD_LETTERS, TaskName, WriteOrder, Writer
from exactum.spark.write.write_task import DeadLetterPlan, Rejections, abort, prepare


def judged(
    order: WriteOrder,
    prepared: Sequence[PreparedTransaction],
    participants: Sequence[Participant],
    dead_letters: DeadLetterPlan | None,
    parallel: Parallel[Any, Any],
) -> list[PreparedTransaction]:
    """What the epoch has prepared, without the rows that targets refuse, and with the dead letters
    that they have become.

    Raises:
        RowsRefused: there are no dead letters, or they refuse them too, or they are too many.
        ExactumError: a target or the dead letters failed; nothing of the epoch is visible.
    """
    judging = {p.name: p for p in participants if judges(p) and p.name != DEAD_LETTERS}
    found = [p for p in prepared if p.participant not in judging]
    asked = [p for name, p in judging.items() if any(t.participant == name for t in prepared)]
    own = {p.name: [t for t in prepared if t.participant == p.name] for p in asked}
    refused = Rejections(dead_letters, order, TaskName(0, 0, 0))
    writers: list[Writer] = []
    try:
        answers = parallel(lambda participant: participant.judge(own[participant.name]), asked)
        for participant, (kept, rejection) in zip(asked, answers, strict=True):
            resolve.require_same(participant.name, "judged", own[participant.name], kept)
            found.extend(kept)
            if rejection is not None:
                refused.take(rejection, participant.name, writers)
        return [*found, *prepare(writers)]
    except BaseException:
        abort(writers)
        raise
