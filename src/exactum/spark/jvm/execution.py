"""Spark's StreamExecution: a run of a streaming query (StreamExecution.scala,
MicroBatchExecution.scala), with the leaves of its plan, which read its sources
(StreamingRelation.scala, DataSourceV2Relation.scala).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass

from exactum.spark.jvm.java_class import class_name, java_class, listed, nodes_of
from exactum.spark.live import RunningSource, below_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAILURE = "org.apache.spark.sql.streaming.StreamingQueryException"
_EMPTY_MAP = "scala.collection.immutable.Map$EmptyMap$"


class Execution:
    """One run of one streaming query of this process; see ``live.LiveRun``.

    Every method raises JvmError where Spark does not answer.
    """

    def __init__(self, execution: Any) -> None:
        self._execution = execution

    @staticmethod
    def find(session: SparkSession, query_id: str) -> Execution | None:
        """The active query with this id, of any session of this Spark application."""
        plain: Any = session
        uuid = java_class(session, "java.util.UUID").fromString(query_id)
        found = plain._jsparkSession.sharedState().activeStreamingQueries().get(uuid)
        return None if found is None else Execution(found)

    @staticmethod
    def of(query: Any) -> Execution:
        """That of a ``StreamingQuery`` of PySpark's."""
        return Execution(query._jsq.streamingQuery())

    @staticmethod
    def active(session: SparkSession) -> list[Execution]:
        """All queries of this Spark application that run; one may end meanwhile."""
        plain: Any = session
        found = plain._jsparkSession.sharedState().activeStreamingQueries()
        # An array, since the end of a Java collection is an exception: PySpark compares it with the
        # names of 13 classes, at some milliseconds each.
        ids = found.keySet().toArray()
        each = (found.get(ids[place]) for place in range(len(ids)))
        return [Execution(one) for one in each if one is not None]

    def session(self) -> SparkSession:
        """The query's own, with the settings that it was started with: that of its batches."""
        from pyspark.sql import SparkSession

        own: Any = self._execution.sparkSessionForStream()
        context: Any = SparkSession.active().sparkContext
        return SparkSession(context, own)

    def query_id(self) -> str:
        return str(self._execution.id().toString())

    def run_id(self) -> str:
        return str(self._execution.runId().toString())

    def name(self) -> str | None:
        given = self._execution.name()
        return None if given is None else str(given)

    def checkpoint(self) -> str:
        """The resolved root of the checkpoint as Spark prints it, a URI."""
        return str(self._execution.resolvedCheckpointRoot())

    def kind(self) -> str:
        """The class: MicroBatchExecution, ContinuousExecution and the like."""
        return class_name(self._execution)

    def trigger(self) -> str:
        return str(self._execution.trigger().toString())

    def is_active(self) -> bool:
        return bool(self._execution.isActive())

    def stop(self) -> None:
        self._execution.stop()

    def fail(self, message: str) -> None:
        """End the query with an error, as one ends whose micro-batch fails; see ``stop``.

        Spark's own way to it is closed to others: what ``exception()`` gives is a variable of its
        that its thread sets when something is thrown there, and keeps otherwise.
        """
        client = self._execution._gateway_client
        no_parameters = getattr(JavaClass(_EMPTY_MAP, client), "MODULE$")
        error = JavaClass(_FAILURE, client)(
            message,
            JavaClass("java.lang.RuntimeException", client)(message),
            "STREAM_FAILED",
            no_parameters,
        )
        getattr(self._execution, "streamDeathCause_$eq")(error)
        self._execution.stop()

    def last_progress(self) -> str | None:
        report = self._execution.lastProgress()
        return None if report is None else str(report.json())

    def failure(self) -> str | None:
        error = self._execution.exception()
        return str(error.get().getMessage()) if error.isDefined() else None

    def has_read_all(self, *, completed: bool) -> bool:
        """Of a query whose trigger ends it, and that has ended: whether it came to that end. It has
        found nothing new; or a batch is ``completed`` where the trigger is for one.
        """
        if class_name(self._execution.triggerExecutor()) == "SingleBatchExecutor" and completed:
            return True
        return bool(self._execution.noNewData())

    def doing(self) -> str:
        return str(self._execution.status().message())

    def end_offsets(self) -> list[str]:
        return str(self._execution.availableOffsets().values().mkString("\n")).splitlines()

    # ---- its plans ---------------------------------------------------------------------------

    def logical_plan(self) -> Any:
        """The query's logical plan, whose leaves are the sources."""
        return self._execution.logicalPlan()

    def executed_plan(self) -> Any:
        """The physical plan of the batch at hand."""
        return self.last_execution().executedPlan()

    def last_execution(self) -> Any:
        """What Spark has planned of the batch at hand: a QueryExecution."""
        return self._execution.lastExecution()

    def sources(self) -> list[RunningSource]:
        """One for each line of the offset log; empty while Spark has not planned the query yet."""
        streams = listed(self._execution.sources())
        return running_sources(streams, self.logical_plan()) if streams else []

    def gather(self, *limits: float) -> bool:
        """Whether all sources are ``read_kafka``'s in columns, which put micro-batches into few
        tasks from the next one on (ColumnarKafka.java has the ``limits``).
        """
        streams = listed(self._execution.sources())
        if not all(class_name(stream) == "ColumnarKafkaStream" for stream in streams):
            return False
        source = JavaClass("exactum.ColumnarKafka", self._execution._gateway_client)
        return all(source.gather(stream, *limits) for stream in streams)

    def metrics_planned(self, prefix: str) -> Iterator[str]:
        """The names of the observed metrics in the query's plan; one that is used twice comes
        twice.
        """
        for node in nodes_of(self.logical_plan()):
            if class_name(node) == "CollectMetrics" and node.name().startswith(prefix):
                yield str(node.name())

    def metrics_named(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """Observed metrics (``Dataset.observe``) in the plan of the batch at hand: the name, and
        the plan of what is observed. One that is used twice comes twice.
        """
        for node in nodes_of(self.last_execution().analyzed()):
            if class_name(node) == "CollectMetrics" and node.name().startswith(prefix):
                yield str(node.name()), node.child()

    def observed(self, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """What these metrics, of bigint columns, have counted in the batch at hand, of those that
        ran.
        """
        found = self.last_execution().observedMetrics()
        rows = {name: found.apply(name) for name in names if found.contains(name)}
        return {
            n: tuple(int(row.getLong(i)) for i in range(row.length())) for n, row in rows.items()
        }


_BETWEEN = "\0"
_Leaf = tuple[Any, str, Mapping[str, str], str]
"""The stream that a leaf of the plan reads (None: none that is known), and what it tells of it:
table, options, path of its metadata."""
_UNKNOWN: _Leaf = None, "", {}, ""


def running_sources(streams: Sequence[Any], logical_plan: Any) -> list[RunningSource]:
    """One for each of a query's streams, which is one for each line of the offset log.

    Which leaf belongs to which line is told by the stream object itself, never by its place.
    """
    leaves = [_read(leaf) for leaf in listed(logical_plan.collectLeaves())]
    found: list[RunningSource] = []
    for index, stream in enumerate(streams):
        same_as = next((i for i in range(index) if _same(streams[i], stream)), index)
        matching = (leaf for leaf in leaves if leaf[0] is not None and _same(leaf[0], stream))
        _, table, options, path = next(matching, _UNKNOWN)
        found.append(RunningSource(index, same_as, table, options, below_checkpoint(path)))
    return found


def _read(leaf: Any) -> _Leaf:
    kind = class_name(leaf)
    if kind == "StreamingDataSourceV2ScanRelation":
        relation = leaf.relation()
        return (
            leaf.stream(),
            str(relation.table().name()).lower(),
            _texts(relation.options().asCaseSensitiveMap()),
            str(relation.metadataPath()),
        )
    if kind == "StreamingExecutionRelation":
        return leaf.source(), "", {}, ""
    return _UNKNOWN


def _texts(options: Any) -> dict[str, str]:
    """A Java map of texts as a dictionary, in few calls to the JVM: a start waits for each of
    them.
    """
    text = JavaClass("java.lang.String", options._gateway_client)
    names, values = text.join(_BETWEEN, options.keySet()), text.join(_BETWEEN, options.values())
    return dict(zip(names.split(_BETWEEN), values.split(_BETWEEN), strict=True)) if names else {}


def _same(one: Any, other: Any) -> bool:
    """Streams have no equality but identity."""
    return bool(one.equals(other))
