"""The process that finishes what is decided, a helper of ``exactum run``: ``python -m exactum.ops.run.finisher FD``.

    supervisor -> finisher    handover, finish
    finisher -> supervisor    finished, trouble

It is a process of its own so that a client library that hangs, or a sink's own code, can be cut short; and it is there
before it is needed, with everything imported. What it is handed may hold credentials and stays in its memory.
"""

from __future__ import annotations

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from exactum.errors import ExactumError
from exactum.protocol.finish import Finished, finish_decided
from exactum.protocol.model import new_incarnation
from exactum.protocol.participant import Participant
from exactum.protocol.resolve import standing_commit
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.spark.decision_place import open_log
from exactum.spark.life.channel import Decoder, Message
from exactum.spark.life.handover import Handover, unpickled

READ_BYTES = 1 << 16


def finish(handover: Handover, batch_id: int) -> list[Finished]:
    """Finish what is decided of the query from ``batch_id`` on; opens targets only where something is. Idempotent.

    Raises:
        ExactumError: a target or the decision log did not answer, or refused.
    """
    query_id = handover.running.query_id
    with ExitStack() as stack:
        log = open_log(handover.running, handover.decision_log)
        stack.callback(log.close)
        if standing_commit(log.read(batch_id)) is None:
            return []
        run = QueryRun(query_id, new_incarnation(), Guarantee.EXACTLY_ONCE)

        def opened(number: int) -> Participant:
            participant = handover.sinks[number].open(run, handover.names[number]).participant
            stack.callback(participant.close)
            return participant

        with ThreadPoolExecutor(len(handover.sinks), "exactum-finish") as pool:
            participants = list(pool.map(opened, range(len(handover.sinks))))
        return finish_decided(participants, log, batch_id)


class Finisher:
    """Answers the messages of the supervisor, one after another."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._handovers: dict[str, Handover] = {}

    def serve(self) -> None:
        """Until the supervisor is gone."""
        decoder = Decoder()
        while data := self._link.recv(READ_BYTES):
            for message in decoder.feed(data):
                self._answer(message)

    def _answer(self, message: Message) -> None:
        query_id = str(message.fields["query_id"])
        try:
            if message.kind == "handover":
                self._handovers[query_id] = unpickled(message.body, message.fields["path"])
                return
            began_s = time.perf_counter()
            finished = finish(self._handovers[query_id], int(message.fields["batch_id"]))
        except ExactumError as error:
            self._trouble(query_id, message.kind, str(error))
        except Exception as error:  # noqa: BLE001  (a sink's own code; the next driver tries again and says more)
            self._trouble(query_id, message.kind, f"{type(error).__name__}: {error}")
        else:
            fields = {
                "query_id": query_id,
                "batches": [one.batch_id for one in finished],
                "transactions": sum(one.transactions for one in finished),
                "rows": sum(one.rows for one in finished),
                "left": sum(one.left for one in finished),
                "took_ms": (time.perf_counter() - began_s) * 1000,
            }
            self._link.sendall(Message("finished", fields).encoded())

    def _trouble(self, query_id: str, at: str, text: str) -> None:
        self._link.sendall(Message("trouble", {"query_id": query_id, "at": at, "text": text}).encoded())


if __name__ == "__main__":
    Finisher(socket.socket(fileno=int(sys.argv[1]))).serve()
