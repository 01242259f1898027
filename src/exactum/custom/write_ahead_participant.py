"""The driver half of a ``WriteAheadSink``: sends what is decided, from where the last run stood."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from exactum.custom.sending import RetryPolicy, Send
from exactum.custom.transaction_name import TransactionName
from exactum.custom.write_ahead_log import WriteAheadLog
from exactum.errors import (
    EpochAborted,
    Fenced,
    HeuristicOutcome,
    InvariantBroken,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
    rows_of,
)
from exactum.protocol.sink import QueryRun


@dataclass(frozen=True)
class _Logged:
    """A prepared transaction as its task left it. ``rows_per_send`` is fixed with it, so that
    chunks stay the same.
    """

    name: TransactionName
    rows: int
    size_bytes: int
    rows_per_send: int

    @property
    def identity(self) -> str:
        return str(self.name)

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.rows_per_send)


class _Gone(Exception):
    """The rows are not there any more: another run has sent them all meanwhile, or they are
    lost.
    """


class WriteAheadParticipant:
    """Driver side of one ``WriteAheadSink`` for one run."""

    def __init__(
        self,
        log: WriteAheadLog,
        run: QueryRun,
        *,
        send: Send,
        delivery: RetryPolicy,
        close: Callable[[], None],
    ) -> None:
        self._log = log
        self._run = run
        self._scope = log.scope
        self._send = send
        self._delivery = delivery
        self._close = close
        self._claims: dict[str, int] = {}

    @property
    def name(self) -> str:
        return self._scope.participant

    def list_open(self) -> Sequence[Sighting]:
        """See the port."""
        names = self._log.transactions()
        return tuple(Sighting(self.name, str(name), name.incarnation) for name in names)

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """See the port: none, the target is not ours to ask."""
        return ()

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port: each file is there and has the length that its task wrote."""
        for p in prepared:
            logged = self._logged(p)
            path, rows = self._log.rows_path(p.identity), self._log.rows(p.identity)
            if rows is None:
                raise SettingRefused(
                    "WRITE_AHEAD_FOLDER",
                    f"Sink {self.name!r}: the driver does not see {path}, which a task has "
                    "written. The log's folder must be one that the driver and all executors "
                    "share. Nothing was sent.",
                )
            if rows.size != logged.size_bytes:
                raise EpochAborted(
                    f"Sink {self.name!r}: {path} has {rows.size} bytes, and its task wrote "
                    f"{logged.size_bytes}. Nothing was sent; start the query again."
                )
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """Send what is not acknowledged yet, in order. Idempotent toward the log; see
        ``write_ahead``.

        Raises:
            Fenced: a newer run has taken the sending over.
            Unavailable: the target or the log did not answer.
            HeuristicOutcome: the log is damaged, or ``send`` said that the target will never take
                the rows.
        """
        self._log.begin_sending([p.identity for p in prepared if self._log.has_rows(p.identity)])
        committed: list[PreparedTransaction] = []
        expired: list[PreparedTransaction] = []
        for p in prepared:
            logged = self._logged(p)
            try:
                self._send_rest(permit, logged)
                self._log.remove_rows(p.identity)
                committed.append(p)
            except _Gone:
                (committed if self._is_sent(logged) else expired).append(p)
        if not expired and {p.identity for p in prepared} >= {
            p.identity for p in permit.record.of(self.name)
        }:
            self._log.mark(permit.record.epoch.batch_id)
        return CommitReport(tuple(committed), tuple(expired))

    def _send_rest(self, permit: CommitPermit, logged: _Logged) -> None:
        """
        Raises:
            _Gone: there are no rows to be sent.
        """
        identity = logged.identity
        if not self._log.has_rows(identity):
            raise _Gone
        claim = self._claim(logged)

        def still_mine() -> None:
            # Claims are removed after the rows: looking in this order, a claim that is missed is
            # seen as rows gone.
            if self._log.is_taken_over(identity, claim):
                raise self._fenced(permit, logged)
            if not self._log.has_rows(identity):
                raise _Gone

        first = self._log.acknowledged(identity)
        number = first - 1
        try:
            self._refuse_damaged(permit, logged)
            for number, chunk in self._log.read(identity, logged.rows_per_send, first):
                self._delivery.deliver(self._send, chunk, f"{identity}.{number}", still_mine)
                self._log.acknowledge(identity, number)
        except (FileNotFoundError, Unavailable) as error:
            if self._log.has_rows(identity):
                raise
            raise _Gone from error
        if number + 1 != logged.chunks:
            raise InvariantBroken(
                f"{permit.record.epoch}: {self._log.rows_path(identity)} gave {number + 1} chunks "
                f"and should have given {logged.chunks}. Keep the file and report this."
            )

    def _refuse_damaged(self, permit: CommitPermit, logged: _Logged) -> None:
        """
        Raises:
            _Gone: the rows are gone.
            HeuristicOutcome: they are not what was prepared and verified.
        """
        path, rows = self._log.rows_path(logged.identity), self._log.rows(logged.identity)
        if rows is None:
            raise _Gone
        if rows.size != logged.size_bytes:
            raise HeuristicOutcome(
                "WRITE_AHEAD_LOST",
                f"{permit.record.epoch} is decided, but {path} with {logged.rows} rows is damaged: "
                f"it has {rows.size} bytes and had {logged.size_bytes}. Of its {logged.chunks} "
                f"chunks of {logged.rows_per_send} rows, {self._log.acknowledged(logged.identity)} "
                "are sent. Restore the file, or see docs/guarantees.md.",
            )

    def _is_sent(self, logged: _Logged) -> bool:
        """Of a transaction without rows. The mark is looked for last: it is there before anything
        else is removed.
        """
        return self._log.acknowledged(logged.identity) >= logged.chunks or self._log.is_marked(
            logged.name.batch_id
        )

    def _claim(self, logged: _Logged) -> int:
        """The run that decided has claim 0; every other one takes over from those before it."""
        if logged.name.incarnation == self._run.incarnation:
            return 0
        if logged.identity not in self._claims:
            self._claims[logged.identity] = self._log.claim(
                logged.identity, str(self._run.incarnation)
            )
        return self._claims[logged.identity]

    def abort(self, transactions: Sequence[Sighting]) -> None:
        """See the port. Idempotent; what is decided is left alone."""
        for sighting in transactions:
            if not self._log.is_decided(sighting.identity):
                self._log.abort(sighting.identity)

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """
        Raises:
            HeuristicOutcome: always; the rows were nowhere else.
        """
        each = "; ".join(f"{self._log.rows_path(p.identity)} with {p.rows} rows" for p in expired)
        raise HeuristicOutcome(
            "WRITE_AHEAD_LOST",
            f"{permit.record.epoch} is decided, but {rows_of(expired)} rows of sink {self.name!r} "
            f"are gone from its log: {each}. The rest is sent. Where the sink was given another "
            "folder, or a relative path from elsewhere, give the one of before and start again. "
            "Else docs/guarantees.md says how to go on.",
        )

    def close(self) -> None:
        """See the port."""
        self._close()

    def _logged(self, prepared: PreparedTransaction) -> _Logged:
        name = self._scope.find(prepared.identity)
        if name is None:
            raise InvariantBroken(
                f"Sink {self.name!r} was given a transaction that is not its own: {prepared}."
            )
        payload = json.loads(prepared.payload)
        return _Logged(
            name, prepared.rows, int(payload["size_bytes"]), int(payload["rows_per_send"])
        )

    def _fenced(self, permit: CommitPermit, logged: _Logged) -> Fenced:
        return Fenced(
            f"{permit.record.epoch}: another run of this query has taken over the sending of "
            f"{logged.identity} (this one is incarnation {self._run.incarnation}). This run stops; "
            "the other one sends the rest. Two drivers ran on one checkpoint, or an older one "
            "woke up: run the query in one place only."
        )
