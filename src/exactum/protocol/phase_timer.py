"""How long each phase of an epoch takes."""

from __future__ import annotations

import time


class PhaseTimer:
    """Adds the wall time of a block to ``phase_ms[phase]``."""

    def __init__(self, phase_ms: dict[str, float], phase: str) -> None:
        self._phase_ms = phase_ms
        self._phase = phase

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        took_ms = (time.perf_counter() - self._began_s) * 1000
        self._phase_ms[self._phase] = self._phase_ms.get(self._phase, 0.0) + took_ms
