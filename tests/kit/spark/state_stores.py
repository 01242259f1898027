"""What Spark keeps of state stores in this JVM (StateStore.scala), as a test needs it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from exactum.spark.jvm.java_class import java_class
from tests.kit.waiting import await_true

_STATE = "org.apache.spark.sql.execution.streaming.state"


class StateStores:
    """The state stores of all queries of this JVM, and the threads that maintain them."""

    def __init__(self, session: SparkSession) -> None:
        plain: Any = session
        self._context = plain.sparkContext
        self._kind = java_class(session, "java.lang.Class").forName(f"{_STATE}.StateStore$")
        self._object = self._kind.getField("MODULE$").get(None)
        self._classes = java_class(session, "java.lang.Class")
        self._objects = java_class(session, "java.lang.Object")

    def stop_maintenance(self) -> None:
        """The next task that opens a store starts it again, at the interval of its query."""
        self._object.stopMaintenanceTask()

    def maintain(self) -> None:
        """Do now what Spark does at each interval, and wait until it is done."""
        at_work = self._private("maintenancePartitions")
        self._private("doMaintenance")
        await_true(lambda: not int(at_work.size()), "it is done")

    def loaded(self) -> set[str]:
        """Those that are: each name has the id of its query's run."""
        return set(str(self._private("loadedProviders").keySet().mkString("\n")).splitlines())

    def _private(self, name: str) -> Any:
        none = self._context._gateway.new_array
        method = self._kind.getDeclaredMethod(name, none(self._classes, 0))
        method.setAccessible(True)
        return method.invoke(self._object, none(self._objects, 0))
