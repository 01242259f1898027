"""Keeps a script running: starts it, hears how it ends, and starts it again or does not.

    running --dies--> delay --> running
    running --dies or freezes--> the standby's turn
    running --SIGTERM--> stopping --> out
    running --done, fenced, refused, too often--> out

One thread, one loop: it waits for signals, for what the children say and for the next moment at
which something is due. It decides nothing about an epoch: a child that it takes for dead and that
is not is fenced by the next one.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable

from exactum.local.own_process import GONE_TIMEOUT_S
from exactum.ops.run.child import POLL_S, Child
from exactum.ops.run.ending import Ending, Meaning, SameBatch, ending
from exactum.ops.run.plan import (
    ENDING_EVERY_S,
    LOOK_EVERY_S,
    STANDBY_AGAIN_S,
    Plan,
    Status,
    standby_due_s,
)
from exactum.ops.run.restart import FirstStarts, GiveUp, Restarts
from exactum.ops.run.script_facts import ScriptFacts
from exactum.ops.run.stopping import Signals, Stopping
from exactum.spark.supervised.supervisor_channel import KILL_AFTER_S, ChannelMessage

STANDBY_SILENT_S = 15.0
"""How long one that stands by may be silent: nothing waits for it. Longer where the one that runs
may be."""
DOUBLED_MAX = 10


class Supervisor:
    """Runs one script. ``say`` shows a line to a person, and waits for nobody."""

    def __init__(
        self,
        plan: Plan,
        restarts: Restarts,
        facts: ScriptFacts,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._restarts = restarts
        self._first_starts = FirstStarts(plan.start_attempts)
        self._same_batch = SameBatch()
        self._facts = facts
        self._say = say
        self._silence = SilenceTimeout(plan.standby_timeout_s)
        self._standby_silence = SilenceTimeout(max(STANDBY_SILENT_S, plan.standby_timeout_s))
        self._active: Child | None = None
        self._standby: Child | None = None
        self._killed: list[Child] = []  # no standby waits for them: what they still do is fenced
        # The batch that was begun last, by query, unless it is known to be complete.
        self._open: dict[str, int] = {}
        self._standby_due_s: float | None = 0.0
        self._start_due_s: float | None = None
        self._stopping = Stopping(plan.stop_timeout_s, say)
        self._waits_for_standby = False  # the one that runs is silent, and that was said
        self._last_look_s = 0.0
        self._outcome: Status | None = None
        self._over = False

    def run(self) -> Status:
        """Until the script is done, must not run any more, or a signal has stopped it. For the main
        thread.
        """
        with Signals() as signals:
            try:
                self._start(time.monotonic(), has_turn=True)
                while not self._over:
                    self._wait()
                    self._look(signals, time.monotonic())
            finally:
                self._end_all()
        outcome = self._outcome or Status.FAILED
        self._facts.close(outcome.name.lower())
        return outcome

    # ---- the loop ----------------------------------------------------------------------------

    def _wait(self) -> None:
        children = self._children()
        links = [child.link for child in children if child.link is not None]
        # A script that has closed its link ends this moment.
        is_ending = len(links) < len(children)
        select.select(links, [], [], ENDING_EVERY_S if is_ending else LOOK_EVERY_S)

    def _look(self, signals: Signals, now_s: float) -> None:
        taken = signals.taken()
        if (
            now_s - self._last_look_s > self._plan.standby_timeout_s / 2
        ):  # we were frozen ourselves, and heard nobody
            for child in self._children():
                child.observed_s = now_s
        self._last_look_s = now_s
        ended: list[tuple[Child, int]] = []
        for child in self._children():
            # Its end is looked for first, so that everything it has said before is heard.
            status = child.status()
            for message in child.received():
                self._observe(child, message, now_s)
            if status is None:
                child.end_leftover(now_s)
            else:
                ended.append((child, status))
        # How a script is stopped depends on what it has said before the signal.
        for _ in range(taken):
            self._asked_to_stop(now_s)
        for child, status in ended:
            if child in self._children():
                self._ended(child, status, now_s)
        if self._standby is not None:
            well = self._standby.ready
            self._let_go_of_standby(now_s, self._standby_silence.lasts_s(got_somewhere=well))
        self._look_at_the_frozen(now_s)
        self._reap()
        self._stopping.look(self._active, now_s)
        self._go_on(now_s)
        self._start_standby(now_s)
        self._facts.looked(self._active, self._standby)

    def _children(self) -> list[Child]:
        return [child for child in (self._active, self._standby) if child is not None]

    def _observe(self, child: Child, message: ChannelMessage, now_s: float) -> None:
        child.observe(message, now_s)
        if message.kind == "warm":
            read = "".join(f", warmed with records of {what}" for what in message.fields["read"])
            self._say(f"process {child.pid} stands by{read}")
        elif child is self._active:
            self._observe_the_active(child, message, now_s)

    def _observe_the_active(self, child: Child, message: ChannelMessage, now_s: float) -> None:
        fields = message.fields
        if message.kind == "run":
            child.began_s = child.began_s or now_s
            child.reports.pop(str(fields["query_id"]), None)
        elif message.kind == "event":
            child.works = child.works or fields["name"] == "EpochCompleted"
            query_id, batch_id = str(fields["event"]["query_id"]), int(fields["event"]["batch_id"])
            if fields["name"] == "EpochBegan":
                self._open[query_id] = batch_id
            elif (
                fields["name"] in ("EpochCompleted", "EpochRedelivered")
                and self._open.get(query_id) == batch_id
            ):
                del self._open[query_id]
                self._same_batch.completed(query_id)
            self._facts.observed(str(fields["name"]), fields["event"])
        elif message.kind == "stopped" and not fields["queries"] and self._stopping.asked:
            self._stopping.terminate(child, "it has no query to stop", now_s)

    # ---- starts ------------------------------------------------------------------------------

    def _start(self, now_s: float, *, has_turn: bool) -> None:
        as_what = "" if has_turn else ", a standby"
        try:
            child = Child(self._plan.command, by_submit=self._plan.by_submit)
        except OSError as error:  # no room, or no process more, for now
            self._say(f"{self._plan.script} could not be started{as_what}: {error}")
            if has_turn:
                given_up = self._first_starts.ended(0.0, began=False, is_transient=False)
                self._failed(now_s, given_up, str(error))
            else:
                self._standby_due_s = now_s + STANDBY_AGAIN_S
            return
        if has_turn:
            self._active = child
            child.give_turn()
        else:
            self._standby = child
        self._say(f"started {self._plan.script} as process {child.pid}{as_what}")
        self._facts.saw("ProcessStarted", pid=child.pid, standby=not has_turn)

    def _start_standby(self, now_s: float) -> None:
        active = self._active
        if (
            not self._plan.standby
            or self._standby is not None
            or self._stopping.asked
            or active is None
            or not active.joined
        ):
            return
        if self._standby_due_s is None or now_s < self._standby_due_s:
            return
        if active.works or now_s > standby_due_s(active.turn_s, active.began_s):
            self._start(now_s, has_turn=False)

    def _go_on(self, now_s: float) -> None:
        """What comes after a death: the next life, which finishes what is decided, or the end."""
        if self._active is not None:
            return
        if self._outcome is not None:
            self._over = True
        elif self._start_due_s is not None and now_s >= self._start_due_s:
            # Nothing of a dead life is left, unless it outlives SIGKILL.
            if self._killed and now_s < self._start_due_s + GONE_TIMEOUT_S:
                return
            self._give_up_killed()
            self._start_due_s = None
            self._start(now_s, has_turn=True)

    # ---- ends --------------------------------------------------------------------------------

    def _ended(self, child: Child, status: int, now_s: float) -> None:
        how = ending(status, child.reports, child.last, now_s)
        if child is self._active:
            how = self._same_batch.judged(how)
        if how.meaning is Meaning.DONE:
            child.await_leaving()
        self._kill(child)
        self._say(f"process {child.pid}: {how.text}")
        if child is self._standby:
            self._standby = None
            self._standby_due_s = None if how.meaning is Meaning.HALT else now_s + STANDBY_AGAIN_S
            if self._standby_due_s is None:
                self._say("there will be no standby any more")
        else:
            self._active = None
            self._after(child, how, now_s)

    def _after(self, child: Child, how: Ending, now_s: float) -> None:
        """The active one has ended."""
        self._facts.ended(child.pid, how)
        if how.meaning is Meaning.DONE:
            self._outcome = Status.DONE
        elif self._stopping.asked:
            self._outcome = Status.FAILED if self._stopping.is_late else Status.DONE
        elif how.meaning is Meaning.HALT:
            self._outcome = Status.HALTED
            self._say("it is not started again: see the reason above")
        else:
            given_up = self._first_starts.ended(
                now_s - child.turn_s, began=child.began, is_transient=how.is_transient
            )
            self._failed(now_s, given_up, how.error)

    def _failed(self, now_s: float, given_up: GiveUp | None = None, error: str = "") -> None:
        delay_s = self._restarts.failed(now_s)
        if isinstance(delay_s, GiveUp):
            given_up, delay_s = delay_s, 0.0
        if given_up is not None:
            with_what = f", with {error}" if error else "; what it printed last is above"
            self._say(f"it is not started again: {given_up.reason}{with_what}")
            self._outcome = Status.FAILED
            return
        self._facts.failed()
        self._let_go_of_standby(now_s, self._plan.standby_timeout_s)
        if self._standby is None:
            self._start_due_s = now_s + delay_s
            self._facts.restarts(delay_s)
            self._say(f"it is started again in {delay_s:.1f} s")
            return
        self._active, self._standby = self._standby, None
        self._active.give_turn()
        self._say(f"process {self._active.pid} takes over")
        self._facts.takes_over(self._active.pid)

    def _let_go_of_standby(self, now_s: float, timeout_s: float) -> None:
        """Who stands by and has been silent for so long is frozen itself: it is killed."""
        standby = self._standby
        if standby is None or standby.silent_s(now_s) < timeout_s:
            return
        self._say(
            f"process {standby.pid}, a standby, has not been heard of for "
            f"{standby.silent_s(now_s):.1f} s: it is killed"
        )
        self._standby = None
        self._standby_due_s = now_s + STANDBY_AGAIN_S
        self._standby_silence.ran_out(got_somewhere=standby.ready)
        self._kill(standby)

    def _look_at_the_frozen(self, now_s: float) -> None:
        """A frozen one is replaced where somebody stands by. If it lives, it is fenced as soon as
        it goes on.
        """
        active, standby = self._active, self._standby
        if active is None or not self._plan.standby or self._stopping.asked or not active.joined:
            return
        silent_s = active.silent_s(now_s)
        if silent_s < self._plan.standby_timeout_s:
            self._waits_for_standby = False
            return
        if standby is None or not standby.ready:
            if not self._waits_for_standby:
                self._waits_for_standby = True
                self._say(
                    f"process {active.pid} has not been heard of for {silent_s:.1f} s, and no "
                    "standby is ready: it is replaced once one is"
                )
            return
        if ending(-signal.SIGKILL, active.reports, active.last, now_s).meaning is Meaning.HALT:
            # It is not frozen but at its end, and has said why nobody may go on: its end is
            # awaited.
            if silent_s > self._plan.standby_timeout_s + KILL_AFTER_S:
                active.signal(signal.SIGKILL)
            return
        if silent_s < self._silence.lasts_s(got_somewhere=active.works):
            return
        if standby.silent_s(now_s) > self._plan.standby_timeout_s / 2:  # it may be frozen as well
            return
        self._silence.ran_out(got_somewhere=active.works)
        self._say(f"process {active.pid} has not been heard of for {silent_s:.1f} s")
        self._facts.saw("ProcessFrozen", pid=active.pid, silent_s=round(silent_s, 1))
        self._active = None
        self._failed(now_s)
        self._kill(active)

    # ---- stopping ----------------------------------------------------------------------------

    def _asked_to_stop(self, now_s: float) -> None:
        if not self._stopping.begin(now_s):
            return
        if self._standby is not None:
            self._kill(self._standby)
            self._standby = None
        if self._active is None:
            self._outcome = self._outcome or Status.DONE
            self._say("stopped while nothing ran")
        else:
            self._stopping.ask(self._active, now_s)

    def _kill(self, child: Child) -> None:
        """Whoever takes over, or runs on, is not held up by what does not die at once: a JVM, or
        one that waits for a disk.
        """
        child.kill()
        self._killed.append(child)

    def _reap(self) -> None:
        self._killed = [child for child in self._killed if not child.is_gone()]

    def _end_all(self) -> None:
        for child in self._children():
            self._kill(child)
        self._active = self._standby = None
        deadline_s = time.monotonic() + GONE_TIMEOUT_S
        while self._killed and time.monotonic() < deadline_s:
            self._reap()
            time.sleep(POLL_S)
        self._give_up_killed()

    def _give_up_killed(self) -> None:
        for child in self._killed:
            self._say(f"process {child.pid} has not ended yet, though it was killed")
        self._killed = []


class SilenceTimeout:
    """Doubles with each process that was given up before it had shown that it gets anywhere: the
    next one may need a pause of the same length at the same place, and would be given up for ever.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._times = 0

    def lasts_s(self, *, got_somewhere: bool) -> float:
        """For a process that has, or has not."""
        return self._timeout_s * (1 if got_somewhere else 2 ** min(self._times, DOUBLED_MAX))

    def ran_out(self, *, got_somewhere: bool) -> None:
        """A process was given up."""
        self._times = 0 if got_somewhere else self._times + 1
