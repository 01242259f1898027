"""What is looked at: made of the options and of what they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from exactum.errors import SettingRefused
from exactum.ops.doctor import machine
from exactum.ops.doctor.checkpoint import (
    CHECKPOINT,
    LOG,
    SINKS,
    WAITS,
    checkpoint_problems,
    log_problems,
    sinks_not_given,
    staging_problems,
)
from exactum.ops.doctor.examination import Area
from exactum.ops.targets.given_sinks import given_sinks
from exactum.ops.transactions.places import ClusterPlace
from exactum.problem import Problem, ok
from exactum.protocol.inspection import Provable
from exactum.protocol.sink import Sink


@dataclass(frozen=True)
class DoctorSubject:
    """``longest_outage_s``: None where nobody said."""

    checkpoint: str | None = None
    decision_log: str | None = None
    staging: str | None = None
    source: ClusterPlace | None = None
    sinks: str | None = None
    inputs: tuple[str, ...] = ()
    group: str | None = None
    longest_outage_s: float | None = None

    def areas(self) -> list[Area]:
        """Everything to look at, in the order in which it is said.

        Raises:
            SettingRefused: topics or a group are given, and nothing says on which cluster; or as
                ``given_sinks``.
        """
        sinks = {} if self.sinks is None else given_sinks(self.sinks)
        return [Area(machine.AREA, machine.findings), *self._places(sinks), *self._targets(sinks)]

    def _places(self, sinks: Mapping[str, Sink]) -> Iterator[Area]:
        checkpoint, decision_log, staging = self.checkpoint, self.decision_log, self.staging
        if checkpoint is not None:
            yield Area(CHECKPOINT, partial(checkpoint_problems, checkpoint, decision_log))
        if checkpoint is not None or decision_log is not None:
            yield Area(LOG, partial(log_problems, decision_log, checkpoint))
        waits = any(isinstance(s, Provable) and s.waits_in_staging for s in sinks.values())
        if staging is not None or (checkpoint is not None and waits):
            yield Area(WAITS, partial(staging_problems, checkpoint, staging))
        if checkpoint is not None and self.sinks is None:
            yield Area(SINKS, partial(sinks_not_given, checkpoint))

    def _targets(self, sinks: Mapping[str, Sink]) -> Iterator[Area]:
        if self.source is not None:
            from exactum.kafka.proof import prove_source

            check = partial(
                prove_source,
                self.source.servers,
                self.source.settings,
                self.inputs,
                self.group,
                self.longest_outage_s,
            )
            yield Area(f"Kafka {self.source.servers}", check)
        elif self.inputs or self.group is not None:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                "--topic and --group need the cluster that they are on: --bootstrap-servers "
                "HOST:PORT, or bootstrap.servers in the file of --command-config.",
            )
        for name, sink in sinks.items():
            if isinstance(sink, Provable):
                yield Area(name, partial(sink.prove, self.longest_outage_s))
            else:
                yield Area(name, partial(_not_tried, name, sink))


def _not_tried(name: str, sink: Sink) -> list[Problem]:
    return [
        ok(
            name,
            f"{type(sink).__name__} was not tried: only its own code knows its target. "
            "exactum.testing.check_two_phase_commit_sink crashes a TwoPhaseCommitSink at every "
            "call.",
        )
    ]
