"""Public test doubles, fault injection and contract suites. For your own sinks, too.

And what a crash test of your own job is told and tells (docs/testing-your-job.md).
"""

from exactum.testing.crash_verdict import (
    CrashRun,
    CrashVerdict,
    OutputDifference,
    OutputNotExact,
    OutputRecord,
    latest_by_key,
)
from exactum.testing.faults import Crash, Fault, FaultPlan, faulty, interpose, sweep
from exactum.testing.log_contract import LogContract
from exactum.testing.memory import MemoryDecisionLog, MemoryStorage
from exactum.testing.participant_contract import SinkContract
from exactum.testing.task_job import TaskJob
from exactum.testing.two_phase_contract import TwoPhaseCommitContract

__all__ = [
    "Crash",
    "CrashRun",
    "CrashVerdict",
    "Fault",
    "FaultPlan",
    "LogContract",
    "MemoryDecisionLog",
    "MemoryStorage",
    "OutputDifference",
    "OutputNotExact",
    "OutputRecord",
    "SinkContract",
    "TaskJob",
    "TwoPhaseCommitContract",
    "faulty",
    "interpose",
    "latest_by_key",
    "sweep",
]
