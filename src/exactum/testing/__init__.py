"""Public test doubles, fault injection, simulation and contract suites. For your own sinks, too.

And what a crash test of your own job is told and tells (docs/testing-your-job.md).
"""

from exactum.testing.crash_verdict import CrashRun, CrashVerdict, OutputNotExact
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
from exactum.testing.output import OutputDifference, OutputRecord, latest_by_key
from exactum.testing.participant_contract import SinkContract
from exactum.testing.schedule import Schedule, Setup
from exactum.testing.simulation import (
    SimulationReport,
    Violation,
    explore,
    outcomes,
    play,
    replay,
    wander,
)
from exactum.testing.task_job import TaskJob
from exactum.testing.two_phase_check import check_two_phase_commit_sink
from exactum.testing.world import System

__all__ = [
    "Crash",
    "CrashRun",
    "CrashVerdict",
    "Fault",
    "FaultPlan",
    "LogContract",
    "MemoryDecisionLog",
    "MemoryParticipant",
    "MemoryStorage",
    "MemoryTarget",
    "MemoryTransaction",
    "MemoryWrite",
    "OutputDifference",
    "OutputNotExact",
    "OutputRecord",
    "Schedule",
    "Setup",
    "SimulationReport",
    "SinkContract",
    "State",
    "System",
    "TaskJob",
    "Violation",
    "check_two_phase_commit_sink",
    "explore",
    "faulty",
    "interpose",
    "latest_by_key",
    "outcomes",
    "play",
    "replay",
    "sweep",
    "wander",
]
