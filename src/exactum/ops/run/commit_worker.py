"""The process that finishes what is decided, a helper of ``exactum run``: ``python -m
exactum.ops.run.commit_worker FD``.

    supervisor -> worker    handover, finish
    worker -> supervisor    finished, trouble

It is a process of its own so that a client library that hangs, or a sink's own code, can be cut
short; and it is there before it is needed, with everything imported. What it is handed may hold
credentials and stays in its memory.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.checkpoint.decision_place import open_log
from exactum.checkpoint.staging_place import staging_at
from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.protocol.finish import Finished, commit_decided, decided_from, finished
from exactum.protocol.model import CommitPermit, PreparedTransaction, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, Sink
from exactum.spark.supervised.handover import Columns, Handover, unpickled
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


def finish(handover: Handover, batch_id: int, timeout_s: float = SINK_TIMEOUT_S) -> FinishReport:
    """Finish what is decided of the query from ``batch_id`` on; opens targets only where something
    is. Idempotent.

    All sinks at once, and none waits for another: what one target cannot take now, the others show
    all the same.

    Raises:
        Unavailable: too many sinks hang since earlier calls.
        ExactumError: the decision log did not answer, or refused.
    """
    log = open_log(handover.running, handover.places.decision_log)
    try:
        permits = decided_from(log, batch_id)
    finally:
        log.close()
    staging = staging_at(handover.running, handover.places.staging)
    run = QueryRun(handover.running.query_id, new_incarnation(), Guarantee.EXACTLY_ONCE, staging)
    named = zip(handover.names, handover.sinks, handover.columns, strict=True)
    parts, troubles = [], {}
    for name, sink, columns in named:
        if not any(permit.record.of(name) for permit in permits):
            continue
        if isinstance(sink, WriteAheadSink):
            # To send is to take the sending over. A standby may have begun to, by now.
            troubles[name] = "It sends the rows, from the first one that was not acknowledged."
        else:
            parts.append(_Part(sink, name, columns, run, permits))
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
            troubles[part.sink_name] = f"no answer within {timeout_s:.0f} s"
        elif part.trouble is not None:
            troubles[part.sink_name] = part.trouble
        committed += part.committed
    return FinishReport(finished(permits, committed), troubles)


class _Part(threading.Thread):
    """One sink's part. Nobody waits for its end: a client that hangs must not keep the other sinks
    back.
    """

    def __init__(
        self,
        sink: Sink,
        name: str,
        columns: Columns,
        by: QueryRun,
        permits: Sequence[CommitPermit],
    ) -> None:
        super().__init__(name=f"exactum-finish-{name}", daemon=True)
        self.sink_name = name
        self._sink = sink
        self._columns = columns
        self._by = by
        self._permits = permits
        self.committed: Sequence[PreparedTransaction] = ()
        self.trouble: str | None = None

    def run(self) -> None:
        try:
            participant = self._sink.open(self._by, self.sink_name, self._columns).participant
            try:
                self.committed = commit_decided(participant, self._permits)
            finally:
                participant.close()
        except Exception as error:  # noqa: BLE001  (also a sink's own code; the next driver tries again and says more)
            self.trouble = _text(error)


class CommitWorker:
    """Answers the messages of the supervisor; no query waits for another one's targets."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._sending = threading.Lock()
        self._handovers: dict[str, Handover] = {}

    def serve(self) -> None:
        """Until the supervisor is gone."""
        decoder = MessageDecoder()
        while data := self._link.recv(READ_BYTES):
            for message in decoder.feed(data):
                if message.kind == "handover":
                    self._take(message)
                else:
                    self._begin(message)

    def _take(self, message: ChannelMessage) -> None:
        query_id = str(message.fields["query_id"])
        try:
            self._handovers[query_id] = unpickled(message.body, message.fields["path"])
        except Exception as error:  # noqa: BLE001  (whatever a sink's class raises)
            self._handovers.pop(query_id, None)
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
            if query_id not in self._handovers:
                raise SettingRefused(
                    "COMMAND_ARGUMENT", "What the query handed over could not be taken."
                )
            outcome = finish(self._handovers[query_id], int(message.fields["batch_id"]))
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
    CommitWorker(socket.socket(fileno=int(sys.argv[1]))).serve()
