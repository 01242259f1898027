"""Public test doubles, fault injection, simulation and contract suites. For your own sinks, too."""

from exactum.testing.faults import Crash, Fault, FaultPlan, faulty, interpose, sweep
from exactum.testing.log_contract import LogContract
from exactum.testing.memory import (
    MemoryDecisionLog,
    MemoryParticipant,
    MemoryStorage,
    MemoryTarget,
    MemoryTransaction,
    MemoryWrite,
    State,
)
from exactum.testing.schedule import Schedule, Setup
from exactum.testing.simulation import Outcome, System, Violation, explore, outcomes, play, replay, wander

__all__ = [
    "Crash",
    "Fault",
    "FaultPlan",
    "LogContract",
    "MemoryDecisionLog",
    "MemoryParticipant",
    "MemoryStorage",
    "MemoryTarget",
    "MemoryTransaction",
    "MemoryWrite",
    "Outcome",
    "Schedule",
    "Setup",
    "State",
    "System",
    "Violation",
    "explore",
    "faulty",
    "interpose",
    "outcomes",
    "play",
    "replay",
    "sweep",
    "wander",
]
