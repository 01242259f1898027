"""The process that finishes what is decided, a helper of ``exactum run --sinks``: ``python -m
exactum.ops.run.commit_worker FD PLACE``.

    supervisor -> worker    run, finish
    worker -> supervisor    finished, trouble

It is a process of its own so that a client library that hangs, or a sink's own code, can be cut
short; and it is there before it is needed, with everything imported.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.query_place import QueryPlace
from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.ops.targets.given_sinks import given_sinks
from exactum.ops.targets.target import Target, targets_of
from exactum.ops.transactions.query_look import inspector_of
from exactum.ops.transactions.settlement import refuse_loss
from exactum.protocol.finish import (
    Finished,
    commit_decided,
    decided_before,
    decided_from,
    finished,
)
from exactum.protocol.model import CommitPermit, PreparedTransaction
from exactum.protocol.sink import Sink
from exactum.spark.supervised.supervisor_channel import ChannelMessage, MessageDecoder

READ_BYTES = 1 << 16
SINK_TIMEOUT_S = 12.0
"""How long a sink may take: less than the supervisor waits for the answer that says what became
of all of them.
"""
SINKS_MAX = 64
"""How many sinks are finished at once. One that hangs counts until this process ends."""


@dataclass(frozen=True)
class FinishReport:
    """What of each decided batch stands now; ``troubles`` says of a sink, by its name, why it was
    not finished.
    """

    batches: Sequence[Finished]
    troubles: Mapping[str, str]


def finish(
    place: QueryPlace,
    sinks: Mapping[str, Sink],
    batch_id: int,
    timeout_s: float = SINK_TIMEOUT_S,
) -> FinishReport:
    """Finish what is decided of the query from ``batch_id`` on; opens targets only where something
    is. Idempotent.

    All sinks at once, and none waits for another: what one target cannot take now, the others show
    all the same.

    Raises:
        SettingRefused: these are not the query's sinks; a script may have several queries.
        Unavailable: too many sinks hang since earlier calls.
        ExactumError: the decision log did not answer, or refused.
    """
    record = place.record()
    if record.present != sinks.keys():
        raise SettingRefused(
            "SINK_UNKNOWN",
            f"--sinks gives {', '.join(map(repr, sinks)) or 'none'}, and the query has "
            f"{', '.join(sorted(map(repr, record.present))) or 'none on file'}.",
        )
    log = place.open_log()
    try:
        permits = decided_from(log, batch_id)
        over = decided_before(log, batch_id)
    finally:
        log.close()
    parts, troubles = [], {}
    for target in targets_of(record, sinks, "exactum run").each:
        if not any(permit.record.of(target.name) for permit in permits):
            continue
        if isinstance(target.sink, WriteAheadSink):
            # To send is to take the sending over. A standby may have begun to, by now.
            troubles[target.name] = "It sends the rows, from the first one not acknowledged."
        else:
            parts.append(_Part(target, place, permits, over))
    hanging = sum(isinstance(thread, _Part) for thread in threading.enumerate())
    if hanging + len(parts) > SINKS_MAX:
        raise Unavailable(
            f"{hanging} sinks of this script are being finished and have not answered yet."
        )
    deadline_s = time.monotonic() + timeout_s
    for part in parts:
        part.start()
    committed: list[PreparedTransaction] = []
    for part in parts:
        part.join(max(0.0, deadline_s - time.monotonic()))
        if part.is_alive():
            troubles[part.target.name] = f"no answer within {timeout_s:.0f} s"
        elif part.trouble is not None:
            troubles[part.target.name] = part.trouble
        committed += part.committed
    return FinishReport(finished(permits, committed), troubles)


class _Part(threading.Thread):
    """One sink's part. Nobody waits for its end: a client that hangs must not keep the other sinks
    back.
    """

    def __init__(
        self,
        target: Target,
        place: QueryPlace,
        permits: Sequence[CommitPermit],
        over: Sequence[CommitPermit],
    ) -> None:
        super().__init__(name=f"exactum-finish-{target.name}", daemon=True)
        self.target = target
        self._place = place
        self._permits = permits
        self._over = over
        self.committed: Sequence[PreparedTransaction] = ()
        self.trouble: str | None = None

    def run(self) -> None:
        try:
            inspector = inspector_of(self.target, self._place)
            try:
                refuse_loss(self._place, inspector, self._over)
                self.committed = commit_decided(inspector.participant(), self._permits)
            finally:
                inspector.close()
        except Exception as error:  # noqa: BLE001  (also a sink's own code; the next driver tries again and says more)
            self.trouble = _text(error)


class CommitWorker:
    """Answers the messages of the supervisor; no query waits for another one's targets. ``sinks``:
    as in ``given_sinks``.
    """

    def __init__(self, link: socket.socket, sinks: str) -> None:
        self._link = link
        self._place = sinks
        self._sending = threading.Lock()
        self._sinks: Mapping[str, Sink] | None = None
        self._queries: dict[str, QueryPlace] = {}

    def serve(self) -> None:
        """Until the supervisor is gone."""
        decoder = MessageDecoder()
        while data := self._link.recv(READ_BYTES):
            for message in decoder.feed(data):
                if message.kind == "run":
                    self._take(message)
                else:
                    self._begin(message)

    def _take(self, message: ChannelMessage) -> None:
        """A run begins: its sinks are imported while nobody waits for them."""
        fields = message.fields
        query_id = str(fields["query_id"])
        folder = Path(fields["checkpoint"])
        self._queries[query_id] = QueryPlace(folder, query_id, fields["decision_log"])
        try:
            self._sinks = self._sinks or given_sinks(self._place)
        except ExactumError as error:
            self._send("trouble", query_id=query_id, at=message.kind, text=_text(error))

    def _begin(self, message: ChannelMessage) -> None:
        """One thread for each query at most: the supervisor asks anew only after an answer, and
        ends this process where none comes.
        """
        name = f"exactum-finish-{message.fields['query_id']}"
        threading.Thread(target=self._finish, args=(message,), name=name, daemon=True).start()

    def _finish(self, message: ChannelMessage) -> None:
        query_id = str(message.fields["query_id"])
        began_s = time.perf_counter()
        try:
            place, batch_id = self._queries[query_id], int(message.fields["batch_id"])
            outcome = finish(place, self._sinks or {}, batch_id)
        except Exception as error:  # noqa: BLE001  (the user's decision log; the next driver tries again and says more)
            self._send("trouble", query_id=query_id, at=message.kind, text=_text(error))
            return
        self._send(
            "finished",
            query_id=query_id,
            batches=[one.batch_id for one in outcome.batches],
            transactions=sum(one.transactions for one in outcome.batches),
            rows=sum(one.rows for one in outcome.batches),
            left=sum(one.left for one in outcome.batches),
            troubles=outcome.troubles,
            took_ms=(time.perf_counter() - began_s) * 1000,
        )

    def _send(self, kind: str, **fields: Any) -> None:
        with self._sending:
            self._link.sendall(ChannelMessage(kind, fields).encoded())


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, ExactumError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    CommitWorker(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).serve()
