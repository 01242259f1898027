"""OpenTelemetry: each micro-batch is a trace, with a span for each phase and for each sink in it.

    exactum.exactly_once(sink, on_event=EpochTraces(trace.get_tracer("shop")))

A listener must not block: the tracer's provider needs a BatchSpanProcessor.
"""

from __future__ import annotations

import time
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from exactum.events import EpochAbandoned, EpochBegan, EpochCompleted, Event, RunStarted

MS = 1_000_000
"""Of nanoseconds."""


class EpochTraces:
    """A listener for one query. Spans are made when a micro-batch is over, of its times."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._query_name = ""
        self._began_ns = 0

    def __call__(self, event: Event) -> None:
        now_ns = time.time_ns()
        if isinstance(event, RunStarted):
            self._query_name = event.name or event.query_id
        elif isinstance(event, EpochBegan):
            self._began_ns = now_ns
        elif isinstance(event, EpochCompleted):
            begin_ns = now_ns - round(sum(event.phase_ms.values()) * MS)
            root = self._epoch(event, min(self._began_ns or begin_ns, begin_ns))
            root.set_attribute("exactum.rows", event.rows)
            for phase, phase_ms in event.phase_ms.items():
                self._phase(root, phase, begin_ns, event)
                begin_ns += round(phase_ms * MS)
            root.end(now_ns)
        elif isinstance(event, EpochAbandoned):
            root = self._epoch(event, self._began_ns or now_ns)
            root.set_status(Status(StatusCode.ERROR, event.reason))
            root.end(now_ns)

    def _epoch(self, event: Event, begin_ns: int) -> Span:
        attributes: dict[str, Any] = {
            "exactum.query": self._query_name,
            "exactum.batch": event.batch_id,
        }
        # Without a parent, whatever span this thread is in.
        return self._tracer.start_span(
            "exactum.epoch", Context(), attributes=attributes, start_time=begin_ns
        )

    def _phase(self, root: Span, phase: str, begin_ns: int, event: EpochCompleted) -> None:
        span = self._tracer.start_span(phase, set_span_in_context(root), start_time=begin_ns)
        for sink, of_sink_ms in event.sink_phase_ms.items():
            if phase in of_sink_ms:
                inner = self._tracer.start_span(
                    f"{phase} {sink}", set_span_in_context(span), start_time=begin_ns
                )
                inner.set_attribute("exactum.rows", event.rows_by_sink.get(sink, 0))
                inner.end(begin_ns + round(of_sink_ms[phase] * MS))
        span.end(begin_ns + round(event.phase_ms[phase] * MS))
