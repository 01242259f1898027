"""A streaming query that exactum has started, as its user holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import StreamingQueryException

from exactum.errors import ExactumError
from exactum.spark.open_queries import EPOCH_TIMEOUT_S, Stoppable, await_rest
from exactum.spark.write.failure import carried_by

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Outcome(Protocol):
    """Of the function that Spark calls."""

    @property
    def error(self) -> BaseException | None:
        """That with which the query stopped, by itself; None: it runs, was stopped, or only Spark
        tells.
        """

    def finish(self) -> None:
        """The query has ended: let go of everything. Idempotent."""


class Query:
    """A running query, as ``start`` returns it. It has every public name of PySpark's
    ``StreamingQuery``, which says more of each. Errors of exactum come as exactum's own, with their
    ``disposition``.

    Args:
        spark_query: Spark's own.
        batches: The function that Spark calls.
        gate: What lets no micro-batch begin while it is shut.
    """

    def __init__(self, spark_query: StreamingQuery, batches: Outcome, gate: Stoppable) -> None:
        self._spark_query = spark_query
        self._batches = batches
        self._gate = gate

    @property
    def id(self) -> str:
        """The same at every start from one checkpoint."""
        return str(self._spark_query.id)

    @property
    def runId(self) -> str:
        """Another one at every start."""
        return str(self._spark_query.runId)

    @property
    def name(self) -> str | None:
        name: str | None = self._spark_query.name
        return name

    @property
    def isActive(self) -> bool:
        return bool(self._spark_query.isActive)

    @property
    def status(self) -> dict[str, Any]:
        return self._spark_query.status

    @property
    def recentProgress(self) -> list[Any]:
        return list(self._spark_query.recentProgress)

    @property
    def lastProgress(self) -> Any:
        return self._spark_query.lastProgress

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query ends, at most ``timeout`` seconds. Without one returns None; else
        whether it has ended.

        Raises:
            ExactumError: what the query stopped with.
            StreamingQueryException: likewise, where Spark itself failed.
        """
        ended: bool | None = None
        try:
            if timeout is None:
                self._spark_query.awaitTermination()
            else:
                # It is annotated with int, and takes both.
                ended = self._spark_query.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            raise self._translated(error) from None
        if self._batches.error is not None and not self.isActive:
            raise self._batches.error
        return ended

    def exception(self) -> Exception | None:
        """What the query stopped with; None: it runs, or was stopped."""
        error = self._spark_query.exception()
        if error is not None:
            return self._translated(error)
        own = self._batches.error
        return own if isinstance(own, Exception) and not self.isActive else None

    def processAllAvailable(self) -> None:
        """Wait until all that is there now is in the sinks. For tests.

        Raises:
            ExactumError: what the query stopped with.
            StreamingQueryException: likewise, where Spark itself failed.
        """
        try:
            self._spark_query.processAllAvailable()
        except StreamingQueryException as error:
            raise self._translated(error) from None

    def explain(self, extended: bool = False) -> None:
        """Print the plan of the last micro-batch; ``extended``: Spark's logical plans as well."""
        self._spark_query.explain(extended)

    def stop(self, *, now: bool = False) -> None:
        """Stop the query after the micro-batch at hand, when Spark has logged it as done: the next
        start has nothing to finish. Idempotent.

        Args:
            now: default False; True cuts the micro-batch at hand off, as Spark's own ``stop`` does.
                The next start writes it again, or finishes it.
        """
        if not now:
            self._gate.shut()
            await_rest(self._gate, lambda: self.isActive, EPOCH_TIMEOUT_S)
        self._spark_query.stop()
        self._batches.finish()

    def _translated(self, error: Exception) -> Exception:
        own = self._batches.error
        return own if isinstance(own, ExactumError) else translated(error)


def translated(error: Exception) -> Exception:
    """What Spark has raised of a query, as exactum says it; else as it is."""
    return carried_by(error) or error
