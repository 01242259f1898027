"""What TLC is asked, and what it must answer: models that hold, and mutations with the promise that
each breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """``module`` under ``config``. With a ``mutation``, the promise ``broken`` must be found
    broken, and no other.
    """

    module: str
    config: str
    mutation: str = "none"
    broken: str = ""

    @property
    def name(self) -> str:
        return f"{self.config}/{self.mutation}" if self.broken else self.config


def _mutations(module: str, config: str, broken: dict[str, str]) -> tuple[Check, ...]:
    return tuple(Check(module, config, mutation, promise) for mutation, promise in broken.items())


PROTOCOL = "DecisionProtocol"
PRUNING = "SlotLog"

SMALL: Sequence[Check] = (
    Check(PROTOCOL, "Small"),
    Check(PROTOCOL, "Live"),
    *_mutations(
        PROTOCOL,
        "Small",
        {
            "no_fence": "FencedNeverDecides",
            "sweep_before_fence": "DecidedNeverAborted",
            "list_after_fence": "DecidedNeverAborted",
            "list_after_record": "DecidedNeverAborted",
            "step_over": "FencedNeverDecides",
            "overwrite": "NoSlotTwice",
            "any_record": "NothingUndecidedVisible",
            "undo_unknown": "DecidedNeverAborted",
            "presumed_commit": "NothingUndecidedVisible",
            "commit_first": "NothingUndecidedVisible",
            "init_before_settled": "DecidedNeverAborted",
            "no_redelivery": "CompletedIsVisible",
            "return_early": "CompletedIsVisible",
            "expired_is_done": "CompletedIsVisible",
            "salvage_unrecorded": "NothingUndecidedVisible",
            "salvage_as_new": "OneCommitInForce",
            "prune_early": "NeededRecordsAreKept",
            "no_floor": "NoSlotTwice",
        },
    ),
    Check(PROTOCOL, "Live", "no_redelivery", "DecidedBecomesVisible"),
    Check(PROTOCOL, "Live", "expired_is_done", "DecidedBecomesVisible"),
    Check(PRUNING, "Slots"),
    *_mutations(
        PRUNING,
        "Slots",
        {
            "remove_first": "NoSlotTwice",
            "no_look": "NoSlotTwice",
            "no_reread": "NoSlotTwice",
            "unmark_first": "NoSlotTwice",
        },
    ),
)

LARGE: Sequence[Check] = (
    Check(PRUNING, "SlotsRead"),
    Check(PRUNING, "SlotsRead", "no_probe", "NoZombieIsBelieved"),
    Check(PROTOCOL, "Wide"),
    Check(PROTOCOL, "LiveLarge"),
    Check(PROTOCOL, "Large"),
)
