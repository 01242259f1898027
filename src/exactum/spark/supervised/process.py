"""The script's side of ``exactum run``: one life of a script that is started again when it dies.

    import exactum --joins--> start(...) --waits for its turn--> runs, beats, tells
    --stop--> the script ends

The script needs no change. Where no supervisor has started it there is no life, and nothing here
does anything. Nothing that a query waits for waits for the supervisor: what is told goes through a
queue that drops when it is full, but for the error that ends a query and its begin, which are sent
at once and for a bounded time.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from exactum import events
from exactum.errors import EpochAborted, ExactumError, Fenced, Unavailable
from exactum.monitor.fact import cut
from exactum.spark.open_queries import EPOCH_TIMEOUT_S, await_rest, open_queries
from exactum.spark.supervised.supervisor_channel import (
    KILL_AFTER_S,
    TEXT_CHARACTERS_MAX,
    VARIABLE,
    ChannelMessage,
    MessageDecoder,
    joined,
)
from exactum.spark.write.failure import OF_SPARKS_LOGS, said_in, thrown

logger = logging.getLogger("exactum")

BEAT_EVERY_S = 0.5
QUEUE_MAX = 1_000
QUERY = re.compile(r"Query \[id = ([0-9a-f-]{36}),")
"""How Spark names the query that has ended with an error."""
PLAN = "=== Streaming Query ==="
"""How Spark begins the plan that it prints below the text of an error."""
SEND_TIMEOUT_S = 2.0
STOP_AGAIN_S = 1.0
"""A script may start queries after it was told to stop."""
TURN_POLL_S = 0.2
OVER_S = 15.0
"""How long other threads of a script go on after its main thread has ended with an error."""
OVER_STOP_TIMEOUT_S = 60.0
"""How long the epochs at hand may take then; and the script to end behind its queries, where no
supervisor ends it."""
READ_BYTES = 1 << 16


class SupervisedProcess:
    """One life of a supervised script. Safe to use from threads. Made by ``current``."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._process = os.getpid()
        self._queue: queue.Queue[tuple[ChannelMessage, threading.Event]] = queue.Queue(QUEUE_MAX)
        self.turn = threading.Event()
        self.source: Mapping[str, str] = {}
        """Options of the Kafka source that a standby warms up with."""
        self._asked = False
        self._dropped = 0
        self._failed: dict[str, str] = {}  # what was told of queries that have ended
        self._complete: set[str] = set()  # queries whose last run has completed a micro-batch
        self._pulse: Callable[[], object] = lambda: None
        self.orphaned = threading.Event()
        self.report("hello", pid=self._process)
        for work in (self._send_queued, self._beat, self._receive):
            name = f"exactum-supervised-{work.__name__.strip('_')}"
            threading.Thread(target=work, name=name, daemon=True).start()

    @property
    def mine(self) -> bool:
        """False in a process that was forked from the script's."""
        return os.getpid() == self._process

    # ---- telling -----------------------------------------------------------------------------

    def report(self, kind: str, *, wait_s: float = 0.0, **fields: Any) -> None:
        """Tell the supervisor, soon; dropped where it does not listen. With ``wait_s`` it returns
        when this is sent, or after so long: a frozen supervisor must not stop a query.
        """
        sent = threading.Event()
        try:
            self._queue.put((ChannelMessage(kind, fields), sent), wait_s > 0, wait_s)
        except queue.Full:
            self._dropped += kind == "event"
            logger.debug("the supervisor does not listen; dropped: %s", kind)
            return
        sent.wait(wait_s)

    def report_event(self, event: events.Event) -> None:
        """Tell of an event, for onlookers. Never blocks."""
        if isinstance(event, events.EpochCompleted):
            self._complete.add(event.query_id)
        self.report("event", name=type(event).__name__, event=event)

    def report_error(self, error: ExactumError, query_id: str) -> None:
        """Tell the error that ends a query, before the process may end with it."""
        self._failed[query_id] = str(error)
        fields = {
            "name": type(error).__name__,
            "disposition": error.disposition.value,
            "message": cut(str(error), TEXT_CHARACTERS_MAX),
        }
        self.report("error", wait_s=SEND_TIMEOUT_S, query_id=query_id, **fields)

    def report_last(self, error: BaseException) -> None:
        """Tell the exception that ends the script, and whose it is: that of exactum in it, or of
        which queries.
        """
        texts = [_text(one) for one in _chain(error)]
        ours = next((one for one in _chain(error) if isinstance(one, ExactumError)), None)
        ours = ours or next((e for e in map(said_in, texts) if isinstance(e, Fenced)), None)
        if isinstance(ours, Fenced) and OF_SPARKS_LOGS in str(ours):
            ours = self._by_sparks_logs(ours, texts)
        failed = [*self._failed.items()]
        queries = [
            query_id
            for query_id, said in failed
            if any(query_id in text or said in text for text in texts)
        ]
        if ours is None and not queries:  # it has not come to exactum
            queries = [query_id for text in texts for query_id in QUERY.findall(text)]
            ours = next(filter(None, map(thrown, _chain(error))), None) if queries else None
        shown = error if ours is None else ours
        disposition = None if ours is None else ours.disposition.value
        fields = {
            "name": type(shown).__name__,
            "message": cut(_text(shown).partition(PLAN)[0].strip(), TEXT_CHARACTERS_MAX),
            "disposition": disposition,
            "queries": queries,
        }
        self.report("last", wait_s=SEND_TIMEOUT_S, **fields)

    def _by_sparks_logs(self, fenced: Fenced, texts: list[str]) -> ExactumError:
        """What it is that Spark's own logs of a query have another run's files. Where the run was
        at work, somebody has come after it: it is fenced. Where it had completed nothing yet, it
        has come itself while an older one was still writing: the next start goes on.
        """
        named = {query_id for text in texts for query_id in QUERY.findall(text)}
        if self._complete & named if named else self._complete:
            return fenced
        return EpochAborted(
            f"Spark found files of another run in the checkpoint ({OF_SPARKS_LOGS}) before this "
            "one had completed a micro-batch: an older run was still writing. The next start goes "
            "on behind it."
        )

    def report_run(self, query_id: str) -> None:
        """A run of the query begins."""
        self._failed.pop(query_id, None)
        self._complete.discard(query_id)
        self.report("run", wait_s=SEND_TIMEOUT_S, query_id=query_id)

    def _send_queued(self) -> None:
        """The only one who sends, so messages are never cut; it waits as long as the supervisor
        does not read, and throws everything away where it is gone.
        """
        gone = False
        while True:
            message, sent = self._queue.get()
            if gone:
                sent.set()
                continue
            try:
                self._link.sendall(_encoded(message))
            except OSError as error:
                logger.debug("the supervisor is gone: %s", error)
                gone = True
            except Exception as error:  # noqa: BLE001  (what comes next is to be told all the same)
                self._dropped += message.kind == "event"
                logger.warning("not told to exactum run: %s", error)
            sent.set()

    # ---- the pulse ---------------------------------------------------------------------------

    def beat_with(self, pulse: Callable[[], object]) -> None:
        """``pulse`` is called before each beat: no beat goes out while it hangs or fails, as where
        the JVM is frozen or gone.
        """
        self._pulse = pulse

    def _beat(self) -> None:
        while not self.orphaned.is_set():
            try:
                self._pulse()
            except Exception as error:  # noqa: BLE001  (the supervisor hears nothing, and acts)
                logger.debug("the JVM did not answer: %s", error)
            else:
                self.report("beat", dropped=self._dropped)
            time.sleep(BEAT_EVERY_S)

    # ---- being told --------------------------------------------------------------------------

    def wait_for_turn(self, meanwhile: Callable[[], None]) -> None:
        """Return once this life may run its queries; the first one at once, a standby when the
        other one is gone.

        ``meanwhile`` is called once if there is time, to begin what a start would wait for; it must
        not block.

        Raises:
            Unavailable: the supervisor is gone, so nobody will ever give the turn, or restart what
                would be started now.
        """
        if not self.turn.is_set():
            self.report("ready")
        while not self.turn.wait(TURN_POLL_S):
            if self.orphaned.is_set() or open_queries.stopping.is_set():
                raise Unavailable(
                    "This process stood by for another one, and exactum run has ended (or is "
                    "ending) before it gave the turn. Nothing was run. Start exactum run again."
                )
            if not self._asked:
                self._asked = True
                logger.info("standing by: another process runs the query")
                meanwhile()
        # A start fences the others of its checkpoint: one that begins after the supervisor's end
        # might fence what a new one has started.
        if self.orphaned.is_set():
            raise Unavailable(
                "exactum run has ended, so no run of a query begins any more in this script. "
                "Nothing was written. Start exactum run again."
            )

    def _receive(self) -> None:
        decoder = MessageDecoder()
        while True:
            try:
                data = self._link.recv(READ_BYTES)
            except OSError:
                data = b""
            if not data:
                # Nobody would restart the queries or stop them any more, and a new supervisor may
                # start others.
                logger.warning(
                    "exactum run is gone: the queries of this script are stopped after their epochs"
                )
                self.orphaned.set()
                self._stop()
                return
            for message in decoder.feed(data):
                if message.kind == "turn":
                    self.turn.set()
                elif message.kind == "stop":
                    threading.Thread(target=self._stop, name="exactum-stop", daemon=True).start()

    def _stop(self) -> None:
        if open_queries.stopping.is_set():
            return
        open_queries.stopping.set()
        has_turn, queries = self.turn.is_set(), 0
        if has_turn:
            queries = _stopped(logging.WARNING)
            self.report("stopped", queries=queries)
        # Who waits for its turn ends by itself, or at its start(...).
        ends_s = time.monotonic() + (OVER_STOP_TIMEOUT_S if queries or not has_turn else 0.0)
        while True:
            time.sleep(STOP_AGAIN_S)
            if has_turn:
                _stopped(logging.DEBUG)
            if self.orphaned.is_set() and time.monotonic() >= ends_s:
                _end_orphan()


def _end_orphan() -> None:
    """As the supervisor would end a script whose queries are stopped, and that goes on."""
    logger.warning("exactum run is gone, and no query is left: this script ends by SIGTERM")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_AFTER_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _encoded(message: ChannelMessage) -> bytes:
    event = message.fields.get("event")
    if event is not None:
        shown = cut(dataclasses.asdict(event), TEXT_CHARACTERS_MAX)
        fields = {**message.fields, "event": shown}
        message = ChannelMessage(message.kind, fields)
    return message.encoded()


def _stopped(level: int) -> int:
    """How many queries were stopped. Why not is logged at ``level``."""
    try:
        return stop_queries()
    except Exception as error:  # noqa: BLE001  (the supervisor goes on to signals)
        logger.log(level, "the queries could not be stopped: %s", error)
        return 0


def stop_queries() -> int:
    """Stop every streaming query of this Spark application, of whichever session; returns how many
    there were.

    Those of exactum are stopped between two epochs, so that Spark's commit log has the last one:
    one that waits where it waits, a busy one after its epoch, however long that takes; its gate
    lets no other one begin (``spark.run.epoch_gate``). Others end by Spark's own ``stop``. None is
    stopped before all of exactum's are there: a script may end with the first of its queries that
    does. Whoever calls has seen to it that no run begins another epoch.

    Raises:
        JvmError: Spark does not answer.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from exactum.spark.jvm.execution import Execution

    try:
        session = SparkSession.active()
    except PySparkException:  # there is no session
        return 0
    executions = Execution.active(session)
    deadline_s = time.monotonic() + EPOCH_TIMEOUT_S
    for execution in executions:
        gate = open_queries.gates.get(execution.run_id())
        if gate is not None:
            await_rest(gate, execution.is_active, deadline_s - time.monotonic())
    for execution in executions:
        what = execution.name() or execution.query_id()
        logger.info("query %s (%s): stopped after its epoch", what, execution.run_id())
        execution.stop()
    return len(executions)


class _Supervision:
    """Joins the supervisor of this process, if it has one, when somebody first asks."""

    def __init__(self) -> None:
        self._joining = threading.Lock()
        self._joined: SupervisedProcess | None = None

    def current(self) -> SupervisedProcess | None:
        if VARIABLE in os.environ:
            with self._joining:
                self._join()
        return self._joined if self._joined is not None and self._joined.mine else None

    def _join(self) -> None:
        address = os.environ.pop(VARIABLE, None)
        link = joined(address) if address else None
        if link is not None and self._joined is None:
            self._joined = SupervisedProcess(link)
            _report_what_ends_the_script(self._joined)


_supervision = _Supervision()
"""Of this process: its supervisor handed it one channel, in its environment."""


def current() -> SupervisedProcess | None:
    """This process for its supervisor, or None where nobody supervises it. The first call joins the
    supervisor.
    """
    return _supervision.current()


def _report_what_ends_the_script(supervised: SupervisedProcess) -> None:
    """An exception that nobody catches is told before Python prints it: an exit status says
    nothing.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not open_queries.stopping.is_set():
            supervised.report_last(error)
        is_over = open_queries.stopping.is_set() or supervised.orphaned.is_set()
        if is_over and isinstance(error, Unavailable) and not supervised.turn.is_set():
            # It has only stood by: where it stood in the script tells nobody anything.
            sys.stderr.write(f"exactum: {error}\n")
            return
        before(kind, error, trace)
        if getattr(sys, "last_value", None) is error:  # Python calls this, and not the script
            threading.Thread(target=_end_later, name="exactum-over", daemon=True).start()

    sys.excepthook = hook


def _end_later() -> None:
    """Other threads of the script may go on behind its main thread, which has ended with an error:
    nobody would start it again.
    """
    time.sleep(OVER_S)
    if open_queries.stopping.is_set():
        return
    sys.stderr.write(
        f"exactum: {OVER_S:.0f} s after the main thread ended with an error others go on. Their "
        "queries are stopped and the script is ended, so that it can be started again.\n"
    )
    open_queries.stopping.set()
    stopping = threading.Thread(
        target=_stopped, args=(logging.WARNING,), name="exactum-stop", daemon=True
    )
    stopping.start()
    stopping.join(OVER_STOP_TIMEOUT_S)
    os._exit(1)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it was raised from or while they were handled, the last one
    first.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as also:  # noqa: BLE001  (its class is known, and it is to be printed all the same)
        return f"(no text: {type(also).__name__})"
