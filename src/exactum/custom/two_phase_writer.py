"""The executor half of a ``TwoPhaseCommitSink``: one task's rows in one transaction of the
user's.
"""

from __future__ import annotations

import copy
import json
import logging
from dataclasses import dataclass
from typing import Any

from exactum.custom.answer import refuse_answer, refuse_unfinished, shown
from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TwoPhaseCommitSink
from exactum.errors import CodeFailed, SettingRefused
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder, Writer

log = logging.getLogger("exactum.custom")

VOID = "Nothing of the epoch is visible."


@dataclass(frozen=True)
class TwoPhaseWriterFactory:
    """Goes to the executors; opens a writer there."""

    sink: TwoPhaseCommitSink[Any]
    scope: TransactionScope

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return TwoPhaseWriter(self.sink, self.scope, order, task)


class TwoPhaseWriter:
    """Begins at the first rows, so a partition without rows neither connects nor opens anything."""

    def __init__(
        self,
        template: TwoPhaseCommitSink[Any],
        scope: TransactionScope,
        order: WriteOrder,
        task: TaskName,
    ) -> None:
        self._template = template
        self._scope = scope
        self._order = order
        self._task = task
        self._connected: TwoPhaseCommitSink[Any] | None = None
        self._begun: tuple[TransactionName, Any] | None = None
        self._rows = 0

    def write(self, batch: Any) -> Rejection | None:
        if batch.num_rows == 0:
            return None
        sink = self._sink()
        if self._begun is None:
            name = self._scope.name(self._order, self._task)
            begun = sink.begin_transaction(name)
            refuse_unfinished(begun, self._method("begin_transaction"), VOID)
            self._begun = (name, begun)
        rejection = sink.invoke(self._begun[1], batch)
        if not isinstance(rejection, Rejection):
            refuse_answer(rejection, self._method("invoke"), VOID)
            rejection = None
        self._rows += batch.num_rows - (rejection.rows.num_rows if rejection is not None else 0)
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        if self._begun is None:
            return None
        sink = self._sink()
        name, transaction = self._begun
        changed = sink.pre_commit(transaction)
        refuse_unfinished(changed, self._method("pre_commit"), VOID)
        if isinstance(changed, bool) and not isinstance(transaction, bool):
            raise CodeFailed(
                "SINK_ANSWER",
                f"{self._method('pre_commit')} returned {shown(changed)}, which would be the "
                f"transaction from now on, in place of {shown(transaction)}. Return that, or "
                f"nothing. {VOID}",
            )
        if changed is not None:
            transaction = changed
            self._begun = (name, transaction)
        if self._order.run.guarantee is not Guarantee.EXACTLY_ONCE:
            refuse_answer(
                sink.commit(transaction),
                self._method("commit"),
                "Whether the transaction is committed is not known.",
            )
            self._begun = None
            self._close()
            return None
        payload = payload_of(sink, transaction)
        self._close()
        return PreparedTransaction(self._scope.participant, str(name), self._rows, payload)

    def abort(self) -> None:
        """Idempotent. After ``prepare`` as well: another sink's writer may have failed, so nobody
        else knows of it.
        """
        begun, self._begun = self._begun, None
        try:
            if begun is not None:
                refuse_answer(
                    self._sink().abort(begun[1]), self._method("abort"), "It may be open still."
                )
        except Exception as error:  # noqa: BLE001  (it must not hide why the task failed; the driver sweeps)
            log.warning(
                "%s could not be aborted by its own task and is left to the driver: %s",
                begun,
                error,
            )
        self._close()

    def _method(self, name: str) -> str:
        return f"Sink {self._scope.participant!r}: {name}()"

    def _sink(self) -> TwoPhaseCommitSink[Any]:
        """This task's copy of the user's sink, connected."""
        if self._connected is None:
            mine = copy.copy(self._template)
            mine.connect()
            self._connected = mine
        return self._connected

    def _close(self) -> None:
        connected, self._connected = self._connected, None
        try:
            if connected is not None:
                connected.close()
        except Exception as error:  # noqa: BLE001  (all that matters is durable by now, or aborted)
            log.warning(
                "task %s could not close %s: %s", self._task, type(connected).__name__, error
            )


def payload_of(sink: TwoPhaseCommitSink[Any], transaction: Any) -> str:
    """What a decision record holds of ``transaction``, after proof that it can be read back.

    Raises:
        SettingRefused: it cannot.
    """
    text = sink.serialize(transaction)
    try:
        sink.deserialize(text)
    except Exception as error:
        raise SettingRefused(
            "SINK_TRANSACTION",
            f"{type(sink).__name__}: deserialize() cannot read what serialize() gave: "
            f"{type(error).__name__}: {error}, so nobody could commit the transaction later: "
            f"{text!r}.",
        ) from error
    return json.dumps({"transaction": text})


def transaction_of(sink: TwoPhaseCommitSink[Any], payload: str) -> Any:
    """The user's transaction in a payload."""
    return sink.deserialize(json.loads(payload)["transaction"])
