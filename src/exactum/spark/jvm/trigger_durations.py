"""What Spark reports of the trigger at hand: ``durationMs`` of its StreamingQueryProgress
(ProgressReporter.scala, ``ProgressContext``). Others may only read it; this adds to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.execution import Execution

FIELD = "currentDurationsMs"


class TriggerDurations:
    """Of one run of a query. ``add`` costs five short calls of the JVM."""

    def __init__(self, execution: Execution, session: Any) -> None:
        self._execution = execution
        self._jvm = session.sparkContext._jvm
        self._field: Any = None
        self._mapper: Any = None

    def add(self, durations_ms: Mapping[str, int]) -> None:
        """Have Spark report these beside its own. Called within the query's batch.

        Raises:
            JvmError: this Spark keeps them elsewhere.
        """
        context = self._execution.latest_context()
        if self._field is None:
            self._field = self._found(context)
            self._mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
            # py4j would make small numbers java.lang.Integer, and Spark's map holds Long.
            features = self._jvm.com.fasterxml.jackson.databind.DeserializationFeature
            self._mapper.enable(features.USE_LONG_FOR_INTS)
            self._mapper = self._mapper.readerFor(
                self._jvm.java.lang.Class.forName("java.util.HashMap")
            )
        values = self._mapper.readValue(json.dumps(durations_ms))
        own = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(values)
        self._field.get(context).addAll(own)

    def _found(self, context: Any) -> Any:
        kind = context.getClass()
        while kind is not None:
            for field in kind.getDeclaredFields():
                if field.getName() == FIELD:
                    field.setAccessible(True)
                    return field
            kind = kind.getSuperclass()
        raise JvmError(f"Spark's progress has no {FIELD}")
