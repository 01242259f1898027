"""What a running query hands to its supervisor, so that what is decided can be finished when the
driver is dead.

The sinks as the user configured them, the names of their participants and the place of the decision
log, in one pickle. By value, as Spark ships functions: a sink class of the script itself goes
along. A sink's ``rows=`` function stays out of it: it may hold on to a Spark session, and nothing
is written with it any more.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exactum.checkpoint.staging_place import Places
from exactum.errors import SettingRefused
from exactum.protocol.sink import Sink
from exactum.spark.query import RunningQuery

_ROWS = "rows"
Columns = tuple[tuple[str, str], ...]
"""(name, Spark's simple type string) of what a sink writes."""


@dataclass(frozen=True)
class Handover:
    """``sinks``, ``names`` and ``columns`` (what each sink writes) in the same order."""

    running: RunningQuery
    sinks: tuple[Sink, ...]
    names: tuple[str, ...]
    places: Places
    columns: tuple[Columns, ...]

    def pickled(self) -> bytes:
        """
        Raises:
            SettingRefused: a sink or the decision log does not pickle; says which error it gave.
        """
        # Where it goes nobody runs the query.
        running = replace(self.running, execution=None)  # type: ignore[arg-type]
        whole = replace(self, running=running)
        file = io.BytesIO()
        try:
            _pickler(file, [sink.rows for sink in self.sinks if sink.rows is not None]).dump(whole)
        except Exception as error:
            raise SettingRefused(
                "SINK_NOT_PICKLABLE",
                f"the sinks of {self.running} cannot be handed over, because one of them (or its "
                f"decision log) does not pickle: {type(error).__name__}: {error}",
            ) from error
        return file.getvalue()


def unpickled(body: bytes, path: Sequence[str]) -> Handover:
    """The handover again. ``path`` is the ``sys.path`` of the one who pickled it: modules may be
    found only there.
    """
    sys.path.extend(entry for entry in path if entry not in sys.path)
    handover: Handover = _Unpickler(io.BytesIO(body)).load()
    return handover


def _pickler(file: io.BytesIO, left_out: list[Callable[[Any], Any]]) -> Any:
    from pyspark.cloudpickle import CloudPickler

    class Pickler(CloudPickler):
        def persistent_id(self, value: Any) -> str | None:
            return _ROWS if any(value is rows for rows in left_out) else None

    pickler: Any = Pickler
    return pickler(file)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> None:
        """A ``rows=`` function, which nobody needs here."""
