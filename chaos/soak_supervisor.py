"""Keeps a query of the soak running, whatever the faults do to it, and notes what happens when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.cell_run import MAY_BE_STARTED_AGAIN
from chaos.job_spec import JobSpec, Result
from chaos.query_oracle import QueryOracle
from chaos.servers import Driver, Servers

DRY_TIMEOUT_S = 240.0
STARTS_MAX = 10
EXCUSED = MAY_BE_STARTED_AGAIN | {"Fenced", "Spark"}
"""Errors after which a query is started again."""


class SoakFailure(AssertionError):
    """Something was seen that must never be."""


@dataclass
class Timeline:
    """What happened when, in seconds from the beginning. Used from several threads."""

    began_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    loud: bool = True

    def note(self, text: str) -> None:
        line = f"{time.monotonic() - self.began_s:7.1f} s  {text}"
        self.lines.append(line)
        if self.loud:
            print(line, flush=True)


class Supervisor:
    """Keeps one query running in a driver process of its own: started again whenever it stops."""

    def __init__(
        self,
        name: str,
        servers: Servers,
        query_oracle: QueryOracle,
        spec: Mapping[str, Any],
        timeline: Timeline,
    ) -> None:
        self.name = name
        self.query_oracle = query_oracle
        self.driver: Driver = servers.hire()
        self.starts = 0
        self._servers = servers
        self._whole = spec
        self._timeline = timeline
        self._spec: JobSpec | None = None

    def spec(self, **changed: Any) -> JobSpec:
        self.starts += 1
        folder = str(self.query_oracle.folder / f"start{self.starts}")
        return JobSpec(**{**self._whole, "folder": folder, **changed})

    def look(self) -> None:
        """What there is to do now: a new process, or another start."""
        if not self.driver.alive:
            self.driver.kill()  # what is left below it
            self.driver, self._spec = self._servers.hire(), None
            self._timeline.note(f"{self.name}: a new driver process")
        if not self.driver.ready:
            return
        if self._spec is not None and (result := self._spec.result) is not None:
            self.judge(result)
            self._spec = None
        if self._spec is None:
            self._spec = self.spec(drain=False)
            self.driver.begin(self._spec)
            self._timeline.note(f"{self.name}: start {self.starts}")

    def judge(self, result: Result) -> None:
        """Raises SoakFailure for an error that no fault excuses."""
        if result.outcome == "failed":
            self._timeline.note(f"{self.name}: stopped: {result.kind}: {result.message[:160]!r}")
            if result.kind not in EXCUSED:
                raise SoakFailure(f"{self.name} stopped with {result.kind}: {result.message}")

    def run_dry(self) -> None:
        """Stop what runs, and start the query until it has read everything."""
        if self._spec is not None and self.driver.alive:
            self._spec.stop()
            self.judge(self.driver.ended(self._spec))
        for _ in range(STARTS_MAX):
            if not self.driver.alive:
                self.driver.kill()
                self.driver = self._servers.hire()
            self.driver.until(lambda: self.driver.ready, "it is ready")
            spec = self.spec(max_offsets=100_000)
            self.driver.begin(spec)
            result = self.driver.ended(spec, DRY_TIMEOUT_S)
            self.judge(result)
            if result.outcome == "finished":
                return
        raise SoakFailure(f"{self.name} did not finish in {STARTS_MAX} starts")
