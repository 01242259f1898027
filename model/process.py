"""One process of a simulation: a driver or a finisher, in a thread that runs only while it holds
the baton.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial

from exactum.errors import ExactumError, OutcomeUnknown, Unavailable
from exactum.protocol.ends import Noted
from exactum.protocol.finish import commit_decided, decided_around, finished
from exactum.protocol.model import Incarnation, SourceOffsets
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun, Write
from exactum.testing.faults import Crash, interpose
from model.memory import MemoryParticipant, MemoryWrite
from model.schedule import FAULTS, FINISHERS, OPERATORS
from model.world import QUERY_ID, World

CALLS_MAX = 2_000
"""Calls of one process; more means that it runs in circles."""
SPARKS_OWN = frozenset({"restart", "offsets", "name offsets", "commits"})
"""Calls that are no port calls: nobody sends them twice."""


class Process:
    """Spark's micro-batch loop around a coordinator; or a finisher or an operator, if its letter
    says so.

    ``ending`` is what it raised, None while it runs and where it came to its end.
    """

    def __init__(self, world: World, letter: str, batches: int) -> None:
        self.letter = letter
        self.finisher = letter in FINISHERS
        self.calls = 0
        self.ended = False
        self.ending: BaseException | None = None
        self.began_batch = 0
        self.struck = False
        self._world = world
        self._batches = batches
        self._budget = 0
        self._dying = False
        self._dead = False
        self._fault = ""
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._thread: threading.Thread | None = None

    def step(self, what: str) -> None:
        """Do what the part of a step after the letter says (see ``schedule``)."""
        if what == "!":
            self.kill()
        elif what == "*":
            self.advance(CALLS_MAX + 1)
        elif what in FAULTS:
            self._fault = what
            self.advance(1)
        else:
            self.advance(int(what))

    def advance(self, calls: int) -> None:
        """Let it make ``calls`` calls, or fewer if it ends."""
        if self.ended or calls == 0:
            return
        self._budget = calls
        if self._thread is None:
            self._back.acquire()
            self._go.acquire()
            self._thread = threading.Thread(
                target=self._main, daemon=True, name=f"process {self.letter}"
            )
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        if self.ended:
            return
        if self._thread is None:
            self.ended, self.ending = True, Crash("its first call")
            return
        self._dying = True
        self.advance(1)

    def run_out(self) -> None:
        """Run to the end, undisturbed, in the thread of the caller."""
        self._budget = CALLS_MAX + 1
        self._live()

    def around(self, label: str, call: Callable[[], object]) -> object:
        """The point between two calls, where others may run or this one may die.

        Raises:
            Crash: it dies here.
            Unavailable, OutcomeUnknown: the call is struck by a fault of the schedule.
        """
        if self._budget == 0 and not self._dying:
            self._back.release()
            self._go.acquire()
        if self._dying:
            self._world.happened[f"death before: {label}"] += not self._dead
            self._dead = True
            raise Crash(label)
        self._budget -= 1
        self.calls += 1
        if self.calls > CALLS_MAX:
            raise RuntimeError(
                f"{self.letter} made more than {CALLS_MAX} calls: it runs in circles"
            )
        world = self._world
        world.trace = hash((world.trace, self.letter, label, self._fault))
        return self._strike(label, call) if self._fault else call()

    def _strike(self, label: str, call: Callable[[], object]) -> object:
        fault, self._fault = self._fault, ""
        happened = self._world.happened
        if fault == "+":
            happened[f"sent twice: {label}"] += 1
            if label not in SPARKS_OWN:
                call()
            return call()
        self.struck = True
        if fault == "-":
            happened[f"refused: {label}"] += 1
            raise Unavailable(f"{label} of {self.letter} was not carried out")
        happened[f"reply lost: {label}"] += 1
        call()
        raise OutcomeUnknown(f"the reply to {label} of {self.letter} was lost")

    def _main(self) -> None:
        self._live()
        self._back.release()

    def _live(self) -> None:
        try:
            if self.finisher:
                self._finish()
            elif self.letter in OPERATORS:
                self._abort()
            else:
                self._spark()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (the oracle judges how it ended)
            self.ending = error
        self.ended = True

    def _spark(self) -> None:
        world, checkpoint = self._world, self._world.checkpoint
        run, ports = self._ports()
        log = world.system.log(world.setup, world.storage, self.around)
        coordinator = world.system.coordinator(
            run, ports, log, noted=Noted(first=0), on_event=world.observed
        )
        setup = world.setup
        apart = world.system.plans_apart(checkpoint, setup.tasks, self.letter, self.around)
        write: Write = MemoryWrite(
            world.targets,
            tasks=setup.tasks,
            retried=setup.retried,
            around=self.around,
            rows=apart.rows if setup.plans_differ else None,
        )
        self.began_batch = self._first_batch()
        if setup.plans_differ:
            apart.begin(self.began_batch, log)
        for batch_id in range(self.began_batch, self._batches):
            if setup.plans_differ:
                offsets = apart.plan(batch_id)
            else:
                offsets = SourceOffsets((), (f"end of {batch_id}",))
                if batch_id not in checkpoint.offsets:
                    self.around("offsets", partial(checkpoint.add, checkpoint.offsets, batch_id))
            try:
                coordinator.run(batch_id, offsets, write)
            except Exception:
                if setup.sweeps_own:
                    with contextlib.suppress(ExactumError):  # the reason is what counts
                        coordinator.sweep_own(batch_id)
                raise
            if setup.sweeps_own:
                coordinator.sweep_own(batch_id)
            if setup.prunes:
                coordinator.prune(batch_id)
            self.around("commits", partial(checkpoint.add, checkpoint.commits, batch_id))

    def _finish(self) -> None:
        world = self._world
        _, ports = self._ports()
        log = world.system.log(world.setup, world.storage, self.around)
        self.began_batch = self._first_batch()
        permits = decided_around(log, self.began_batch)[1].commits
        committed = [transaction for port in ports for transaction in commit_decided(port, permits)]
        for batch in finished([permit.record for permit in permits], committed):
            world.happened["batches finished by a finisher"] += batch.transactions > 0

    def _abort(self) -> None:
        world = self._world
        _, ports = self._ports()
        log = world.system.log(world.setup, world.storage, self.around)
        self.began_batch = self._first_batch()
        done = world.system.abort(QUERY_ID, self.began_batch, ports, log)
        world.happened["aborted by an operator"] += len(done.aborted)

    def _ports(self) -> tuple[QueryRun, list[Participant]]:
        run = QueryRun(QUERY_ID, Incarnation(self.letter), Guarantee.EXACTLY_ONCE)
        return run, [
            interpose(MemoryParticipant(target, run), self.around) for target in self._world.targets
        ]

    def _first_batch(self) -> int:
        found = self.around("restart", self._world.checkpoint.first_batch)
        if not isinstance(found, int):
            raise TypeError(f"first_batch gave {found!r}")
        return found
