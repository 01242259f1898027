"""Verifies a query: its records and each sink's evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError, SettingRefused
from exactum.ops.targets.target import QueryTargets, Target
from exactum.ops.verify.evidence import Evidence, Finding
from exactum.ops.verify.file_evidence import FileEvidence
from exactum.ops.verify.kafka_evidence import KafkaEvidence
from exactum.ops.verify.promise import Promise, Promises, SparkProgress, promises
from exactum.ops.verify.table_evidence import table_evidence
from exactum.protocol.resolve import commit_in_force
from exactum.storage.at import storage_at

Progress = Callable[[int], None]
"""Told how much is done, in the unit of ``SinkCheck.unit``."""


@dataclass(frozen=True)
class SinkCheck:
    """One sink, ready to be looked at. ``cost`` is in ``unit`` (offsets, bytes)."""

    name: str
    cost: int
    unit: str
    look: Callable[[Progress], list[Evidence]]


@dataclass(frozen=True)
class EpochRange:
    """Batches to verify; None: from the first, to the last that is on record."""

    first: int | None = None
    last: int | None = None


class Verification:
    """Of one query. Entered while it looks, for its connections."""

    def __init__(self, place: QueryPlace, targets: QueryTargets, epochs: EpochRange) -> None:
        """
        Raises:
            ExactumError: the decision log cannot be read, or there is no such epoch.
        """
        self._place = place
        self._targets = targets
        self._epochs = epochs
        newest = place.planned()
        if newest is None:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"{place} has not begun any micro-batch: nothing is promised yet.",
            )
        self._newest = newest
        self.promises = self.read()
        self._open = ExitStack()

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self) -> Promises:
        """The records of the range, as they are now."""
        return self._read(self._epochs.first, self._epochs.last)

    def _read(self, first: int | None, last: int | None) -> Promises:
        log = self._place.open_log()
        try:
            newest = max(self._newest, self._place.planned() or 0)
            finished = self._place.finished()
            done = -1 if finished is None else finished
            progress = SparkProgress(newest, done, self._place.kept())
            return promises(log, progress, first, last)
        finally:
            log.close()

    def checks(self, only: str | None = None) -> Iterator[SinkCheck]:
        """One for each sink that the records name.

        Raises:
            SettingRefused: ``only`` is none of them.
        """
        names = self.promises.participants()
        if only is not None and only not in names:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"No record of these epochs names a sink {only!r}. They name: "
                f"{', '.join(map(repr, names)) or 'none'}.",
            )
        for name in names if only is None else [only]:
            yield self._check(name, self._targets.named(name))

    def _check(self, name: str, target: Target | None) -> SinkCheck:
        if target is None:
            not_given = "the sink is not given: --sinks FILE.py:NAME, or set EXACTUM_SINKS"
            return self._unknowable(name, not_given)
        try:
            return self._by_kind(name, target.sink)
        except (ExactumError, OSError, ValueError) as error:
            return self._unknowable(name, str(error))

    def _by_kind(self, name: str, sink: Any) -> SinkCheck:
        from exactum.files.sink import FileSink
        from exactum.kafka.sink import KafkaSink
        from exactum.lake.sink import TableSink
        from exactum.sql.sink import SqlSink

        if isinstance(sink, KafkaSink):
            return self._kafka(name, sink)
        if isinstance(sink, SqlSink):
            return self._sql(name, sink)
        if isinstance(sink, FileSink):
            return self._files(name, sink)
        if isinstance(sink, TableSink):
            return self._table(name, sink)
        return self._unknowable(name, "a target of your own: nobody but you can count its rows")

    def _kafka(self, name: str, sink: Any) -> SinkCheck:
        requests = sink.connect()
        self._open.callback(requests.close)
        each = self.promises.each
        looked = KafkaEvidence(
            name,
            requests,
            lambda: self._read(self._epochs.first, None).each,
            each[0].batch_id,
            each[-1].batch_id,
        )
        return SinkCheck(name, sum(looked.cost.values()), "offsets", looked.look)

    def _sql(self, name: str, sink: Any) -> SinkCheck:
        from exactum.ops.verify.sql_evidence import SqlEvidence, access_by
        from exactum.sql.dialect import Role, SqlFailure
        from exactum.sql.failure import port_error

        where = f"sink {name!r} at {sink.address.where}"
        try:
            session = sink.dialect.connect(sink.address, Role.DRIVER, "exactum verify", 10.0)
            self._open.callback(session.close)
            looked = SqlEvidence(
                name,
                self._place.query_id,
                access_by(sink, session),
                self._place.staging(),
            )
            cost = looked.cost_bytes(self.promises.each)
        except SqlFailure as failure:
            raise port_error(failure, where) from failure

        def look(progress: Progress) -> list[Evidence]:
            try:
                found = looked.look(self.promises.each)
            except SqlFailure as failure:
                raise port_error(failure, where) from failure
            progress(cost)
            return [*found, *self._unknown_to_the_log(name, looked.last_batch, "ledger")]

        return SinkCheck(name, cost, "bytes", look)

    def _files(self, name: str, sink: Any) -> SinkCheck:
        files = storage_at(*sink.location)
        looked = FileEvidence(name, self._place.query_id, files, sink.options)
        each = self.promises.each

        def look(progress: Progress) -> list[Evidence]:
            found = looked.look(each, progress)
            return [*found, *self._unknown_to_the_log(name, looked.last_batch, "files")]

        return SinkCheck(name, looked.cost_bytes(each), "bytes", look)

    def _table(self, name: str, sink: Any) -> SinkCheck:
        inspector = sink.inspector(self._place.query_id, name)
        self._open.callback(inspector.close)

        def look(progress: Progress) -> list[Evidence]:
            each = self.promises.each
            found = table_evidence(name, inspector, sink.rows_by_task(), each)
            progress(len(each))
            last = inspector.participant().last_batch()
            return [*found, *self._unknown_to_the_log(name, last, "marker")]

        return SinkCheck(name, len(self.promises.each), "micro-batches", look)

    def _unknown_to_the_log(self, name: str, last: int | None, by: str) -> list[Evidence]:
        """The last batch that a target has, where no record is of it: it was decided by a log that
        is not this one. What a driver that lives has decided meanwhile is on record by now.
        """
        done = self._place.finished()
        if last is None or (done is not None and last <= done):
            return []  # without a record it is among ``unrecorded``
        log = self._place.open_log()
        try:
            if commit_in_force(log.read(last)) is not None:
                return []
        finally:
            log.close()
        why = (
            "the target has this batch, and the decision log does not know of it: checkpoint or "
            "log are an older copy, or two queries run on copies of one checkpoint"
        )
        return [Evidence(last, name, 0, None, Finding.EXTRA, by, why)]

    def _unknowable(self, name: str, why: str) -> SinkCheck:
        def look(_: Progress) -> list[Evidence]:
            return [unknown(promise, name, why) for promise in self.promises.each]

        return SinkCheck(name, 0, "offsets", look)


def looked(check: SinkCheck, promised: Sequence[Promise], progress: Progress) -> list[Evidence]:
    """What a sink's check finds; where its target fails meanwhile, that nothing is known."""
    try:
        return check.look(progress)
    except (ExactumError, OSError, ValueError) as error:
        return [unknown(promise, check.name, str(error)) for promise in promised]


def unknown(promise: Promise, name: str, why: str) -> Evidence:
    return Evidence(
        promise.batch_id, name, promise.rows(name), None, Finding.UNKNOWABLE, "nothing", why
    )
