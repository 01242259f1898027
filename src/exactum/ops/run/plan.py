"""What ``exactum run`` was told, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exactum.errors import SettingRefused

LOOK_EVERY_S, ENDING_EVERY_S = 0.1, 0.01
STANDBY_AFTER_S = 20.0
"""A standby is started when the active one has completed an epoch, at the latest so long after its
query has begun: a starting JVM takes all the processors it gets, and the active one needs them."""
STANDBY_LAST_S = 60.0
"""Where no query has begun so long after its turn, one is started all the same."""
STANDBY_AGAIN_S = 10.0
LONGEST_DELAY_S = 60.0
"""The longest restart delay where none is given."""
STANDBY_TIMEOUT_MIN_S = 2.0
"""Four beats. A script that is well has been silent for one, and for more on a busy machine."""


class Status(Enum):
    """The exit status of ``exactum run``."""

    DONE = 0
    FAILED = 1
    HALTED = 3


@dataclass(frozen=True)
class Plan:
    """``command`` is the script with its interpreter, or with spark-submit (``by_submit``), and its
    arguments.

    ``start_attempts``: how often it may end before any query of it has begun.
    """

    script: str
    command: tuple[str, ...]
    by_submit: bool = False
    standby: bool = False
    standby_timeout_s: float = 5.0
    stop_timeout_s: float = 60.0
    start_attempts: int = 3


def standby_timeout_s(given_s: float | None, *, standby: bool) -> float:
    """How long the first process may be silent; without a standby nobody asks.

    Raises:
        SettingRefused: it is given without a standby, or a script that is well would be taken for
            silent, again and again.
    """
    if given_s is None:
        return Plan.standby_timeout_s
    if not standby:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            "--standby-timeout is how long a script may be silent before its standby takes over, "
            "and there is none: give --standby as well, or leave it out. Nothing was started.",
        )
    if given_s < STANDBY_TIMEOUT_MIN_S:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"--standby-timeout of {given_s:g} s is too short: a script that is well is "
            "heard of every half second, and would be replaced again and again. Give at least "
            f"{STANDBY_TIMEOUT_MIN_S:g} s. Nothing was started.",
        )
    return given_s


def longest_delay_s(delay_s: float, given_s: float | None) -> float:
    """Of the delays before a restart, whose first one is ``delay_s``.

    Raises:
        SettingRefused: the longest is shorter than the first.
    """
    if given_s is not None and given_s < delay_s:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"--restart-delay-max of {given_s:g} s is shorter than --restart-delay of {delay_s:g} "
            "s. Give at least as much, or the same for a fixed delay. Nothing was started.",
        )
    return max(delay_s, LONGEST_DELAY_S) if given_s is None else given_s


def standby_due_s(turn_s: float, began_s: float | None) -> float:
    """When a standby is started for one that has not completed an epoch: it got its turn and began
    its query then.
    """
    return turn_s + STANDBY_LAST_S if began_s is None else began_s + STANDBY_AFTER_S
