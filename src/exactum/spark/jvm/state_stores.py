"""The state stores that this JVM has loaded, those of queries that have ended as well
(StateStore.scala): its tasks load them, and threads of Spark's maintain them beside the batches.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

from exactum.spark.jvm.java_class import java_class

_OBJECT = "org.apache.spark.sql.execution.streaming.state.StateStore$"
MAINTENANCE_MAX_S = 60.0
"""How long maintenance that is at work is waited for. It may be uploading a snapshot."""
_POLL_S = 0.02


class StillMaintained(Exception):
    """Spark is at work on a store, and did not come to an end."""


class LoadedStore:
    """A store that is loaded (StateStoreProviderId). ``location`` is the folder of all state of its
    query, as that run spelled it.
    """

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self.run_id = str(provider.queryRunId().toString())
        self.location = str(provider.storeId().checkpointRootLocation())

    def __str__(self) -> str:
        return f"{self.provider.storeId().toString()} of run {self.run_id}"


class LoadedStores:
    """All that this JVM has loaded. Every method raises JvmError where Spark has no such part."""

    def __init__(self, session: SparkSession) -> None:
        plain: Any = session
        self._session = session
        self._array = plain.sparkContext._gateway.new_array
        self._class = java_class(session, "java.lang.Class")
        self._any = java_class(session, "java.lang.Object")
        self._kind = self._named(_OBJECT)
        self._object = self._kind.getField("MODULE$").get(None)

    def all(self) -> list[LoadedStore]:
        """Those that are loaded now."""
        loaded = self._private("loadedProviders")
        converters = java_class(self._session, "scala.jdk.javaapi.CollectionConverters")
        # Tasks change the map meanwhile, and hold its monitor when they do: this collection is the
        # one class of the JDK that takes the monitor of another object.
        kinds = self._named("java.util.Collection"), self._named("java.lang.Object")
        locked = self._named("java.util.Collections$SynchronizedCollection")
        make = locked.getDeclaredConstructor(self._of(self._class, *kinds))
        make.setAccessible(True)
        ids = converters.asJavaCollection(loaded.keySet())
        return [
            LoadedStore(provider)
            for provider in make.newInstance(self._of(self._any, ids, loaded)).toArray()
        ]

    def retire(self, store: LoadedStore) -> None:
        """Unload a store whose run is over, without a last snapshot of it, and let none be made of
        it by what is at work now or by a task of that run that comes late.

        Raises:
            StillMaintained: Spark was at work on it all the time.
        """
        deadline_s = time.monotonic() + MAINTENANCE_MAX_S
        # Spark maintains a store only if it can mark it as being maintained. The mark stays: it is
        # a few bytes for each store of a run.
        while not self._private("processThisPartition", store.provider):
            if time.monotonic() > deadline_s:
                raise StillMaintained(
                    f"Spark was at work on {store} for {MAINTENANCE_MAX_S:.0f} seconds"
                )
            time.sleep(_POLL_S)
        if self._has("removeFromLoadedProvidersAndClose"):
            nothing = java_class(self._session, "scala.Option").empty()
            self._object.removeFromLoadedProvidersAndClose(store.provider, nothing)
        else:
            self._object.unload(store.provider)  # Spark 4.0

    def _private(self, name: str, *arguments: Any) -> Any:
        kinds = [each.getClass() for each in arguments]
        method = self._kind.getDeclaredMethod(name, self._of(self._class, *kinds))
        method.setAccessible(True)
        return method.invoke(self._object, self._of(self._any, *arguments))

    def _has(self, name: str) -> bool:
        return any(str(method.getName()) == name for method in self._kind.getMethods())

    def _named(self, name: str) -> Any:
        return self._class.forName(name)

    def _of(self, kind: Any, *elements: Any) -> Any:
        array = self._array(kind, len(elements))
        for place, each in enumerate(elements):
            array[place] = each
        return array
