"""OpenTelemetry: one trace for each micro-batch, with a span for each phase and each sink in it.
Needs ``exactum[otel]``.

    exactum.epoch                      query, batch id, run, rows
      write
      verify
        verify kafka:totals
      decide
      commit
        commit kafka:totals            rows
      sweep

Never a span for a query: it would be open for months. Spans are made when an epoch is over, from
its times, and off its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exactum._version import __version__
from exactum.errors import SettingRefused
from exactum.monitor.fact import Fact
from exactum.monitor.recorder import RECORDER
from exactum.packages import HERE, not_installed

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

MISSING = not_installed("Traces need", "opentelemetry-sdk", "otel", HERE)
MS = 1_000_000
"""Of nanoseconds."""
PHASES = ("write", "verify", "decide", "commit", "sweep")
"""In the order in which they come."""


class EpochTraces:
    """Made by ``exactum.trace_epochs``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._names: dict[str, Mapping[str, Any]] = {}
        self._began_ms: dict[str, tuple[int, int]] = {}

    def __str__(self) -> str:
        return "micro-batches could not be traced"

    def close(self) -> None:
        """Trace no more. Idempotent."""
        RECORDER.remove(self)

    def take(self, facts: Sequence[Fact]) -> None:
        """See ``recorder.Outlet``."""
        for fact in facts:
            if fact.name == "RunStarted":
                self._names[fact.query_id] = fact.fields
            elif fact.name == "EpochBegan":
                self._began_ms[fact.query_id] = int(fact.fields["batch_id"]), fact.at_ms
            elif fact.name == "EpochCompleted":
                self._completed(fact)
            elif fact.name == "EpochAbandoned":
                self._abandoned(fact)

    def _completed(self, fact: Fact) -> None:
        phases = {name: float(ms) for name, ms in fact.fields["phase_ms"].items()}
        begin_ns = self._begin_ns(fact, sum(phases.values()))
        root = self._root(fact, begin_ns)
        root.set_attribute("exactum.rows", int(fact.fields["rows"]))
        root.set_attribute("exactum.transactions", int(fact.fields["transactions"]))
        at_ns = max(begin_ns, fact.at_ms * MS - round(sum(phases.values()) * MS))
        ordered = [*(p for p in PHASES if p in phases), *(p for p in phases if p not in PHASES)]
        for name in ordered:
            end_ns = at_ns + round(phases[name] * MS)
            self._phase(root, name, at_ns, end_ns, fact.fields)
            at_ns = end_ns
        root.end(fact.at_ms * MS)

    def _phase(self, root: Span, name: str, at_ns: int, end_ns: int, of: Mapping[str, Any]) -> None:
        from opentelemetry import trace

        span = self._tracer.start_span(name, trace.set_span_in_context(root), start_time=at_ns)
        for sink, its in of["sink_phase_ms"].items():
            if name not in its:
                continue
            attributes: dict[str, Any] = {"exactum.sink": sink}
            if sink in of["rows_by_sink"]:
                attributes["exactum.rows"] = int(of["rows_by_sink"][sink])
            part = self._tracer.start_span(
                f"{name} {sink}",
                trace.set_span_in_context(span),
                attributes=attributes,
                start_time=at_ns,
            )
            part.end(min(end_ns, at_ns + round(float(its[name]) * MS)))
        span.end(end_ns)

    def _abandoned(self, fact: Fact) -> None:
        from opentelemetry.trace import Status, StatusCode

        root = self._root(fact, self._begin_ns(fact, 0.0))
        root.set_status(Status(StatusCode.ERROR, str(fact.fields["reason"])))
        root.end(fact.at_ms * MS)

    def _begin_ns(self, fact: Fact, at_least_ms: float) -> int:
        batch_id, began_ms = self._began_ms.pop(fact.query_id, (None, fact.at_ms))
        if batch_id != int(fact.fields["batch_id"]):
            began_ms = fact.at_ms
        return min(began_ms * MS, fact.at_ms * MS - round(at_least_ms * MS))

    def _root(self, fact: Fact, begin_ns: int) -> Span:
        from opentelemetry.context import Context

        run = self._names.get(fact.query_id, {})
        attributes = {
            "exactum.query.id": fact.query_id,
            "exactum.query.name": run.get("name") or fact.query_id,
            "exactum.run.id": run.get("run_id"),
            "exactum.incarnation": fact.fields["incarnation"],
            "exactum.batch.id": int(fact.fields["batch_id"]),
            "exactum.attempt": int(fact.fields["attempt"]),
        }
        return self._tracer.start_span(
            "exactum.epoch",
            Context(),  # a trace of its own, whatever this thread is in
            attributes={name: value for name, value in attributes.items() if value is not None},
            start_time=begin_ns,
        )


def trace_epochs(tracer_provider: TracerProvider | None = None) -> EpochTraces:
    """Trace the micro-batches of this process's queries from now on.

    Each is a trace of its own: a span ``exactum.epoch`` with a span for each phase, and in verify
    and commit one for each sink. Attributes are ``exactum.query.id``, ``exactum.query.name``,
    ``exactum.run.id``, ``exactum.incarnation``, ``exactum.batch.id``, ``exactum.attempt``,
    ``exactum.rows``, ``exactum.transactions`` and ``exactum.sink``. It works off the queries' path.

    Args:
        tracer_provider: who exports the spans; default OpenTelemetry's global one, as its SDK or
            its environment variables have set it up.

    Returns:
        An object with ``close()``, which ends it.

    Raises:
        SettingRefused: ``exactum[otel]`` is not installed.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise SettingRefused(MISSING) from error
    traces = EpochTraces(trace.get_tracer("exactum", __version__, tracer_provider))
    RECORDER.add(traces)
    return traces
