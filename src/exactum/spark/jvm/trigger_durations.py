"""What Spark reports of the trigger at hand: ``durationMs`` of its StreamingQueryProgress
(ProgressReporter.scala, ``ProgressContext``). Others may only read it; this adds to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import get_java_class

from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.java_class import java_class

FIELD = "currentDurationsMs"
_JACKSON = "com.fasterxml.jackson.databind"


class TriggerDurations:
    """Of one run of a query. ``add`` costs five short calls of the JVM."""

    def __init__(self, execution: Execution, session: Any) -> None:
        self._execution = execution
        self._session = session
        self._python_utils = java_class(session, "org.apache.spark.api.python.PythonUtils")
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
            self._mapper = java_class(self._session, f"{_JACKSON}.ObjectMapper")()
            # py4j would make small numbers java.lang.Integer, and Spark's map holds Long.
            features = java_class(self._session, f"{_JACKSON}.DeserializationFeature")
            self._mapper.enable(features.USE_LONG_FOR_INTS)
            self._mapper = self._mapper.readerFor(
                get_java_class(java_class(self._session, "java.util.HashMap"))
            )
        values = self._mapper.readValue(json.dumps(durations_ms))
        own = self._python_utils.toScalaMap(values)
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
