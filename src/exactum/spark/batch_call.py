"""One call of exactum for one micro-batch: a second one would find the first one's record and take
it for its own.

A record says that a batch is done in every sink. It cannot say in which of two calls, so whoever
comes second drains its rows, and they are lost. A second call is refused: before anything is
decided where the calling function's code shows it (``later_call``) or where both run at once, and
otherwise before the second one does anything.
"""

from __future__ import annotations

import dis
import sys
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from exactum.errors import SettingRefused

RUNS_MAX = 1_000
"""Runs whose last batch is remembered; the oldest is forgotten first."""
SPARK = "pyspark."
HOW = (
    "One micro-batch is one call, for one record decides it: give all sinks to one call, "
    "exactum.exactly_once(first_sink, second_sink), and each sink that takes a part of the batch "
    "its own rows=lambda batch: batch.where(...)."
)


class BatchCall:
    """The one call that a micro-batch of a run is given."""

    def __init__(self, batch_id: int) -> None:
        self.batch_id = batch_id
        self.contested = False
        self.done = False
        self.failed = ""
        """With which error; the query has to end with it."""

    def refuse_contested(self) -> None:
        """
        Raises:
            SettingRefused: another call for the same batch has come meanwhile; nothing is decided
                yet.
        """
        if self.contested:
            raise SettingRefused(
                f"exactum was called twice at once for micro-batch {self.batch_id}. {HOW} Nothing "
                "was written."
            )


class ErrorCaught(SettingRefused):
    """The error of an earlier batch never reached Spark, which has logged that batch as done."""


class BatchCalls:
    """The last micro-batch of each run of a query that had its call. Safe to use from threads."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, BatchCall] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, run_id: str, batch_id: int) -> BatchCall:
        """The call of this batch, for the first one who asks.

        Raises:
            SettingRefused: it was taken.
            ErrorCaught: the run's last batch failed, and Spark went on all the same.
        """
        with self._lock:
            last = self._last.get(run_id)
            if last is not None and last.batch_id == batch_id:
                last.contested = True
                text = (
                    f"exactum was called a second time for micro-batch {batch_id}: "
                    f"{_of_the_first(last)} {HOW} Nothing of this second call was written."
                )
                last.failed = last.failed or text
                raise SettingRefused(text)
            if last is not None and last.failed:
                raise ErrorCaught(
                    "The function given to foreachBatch caught exactum's error of micro-batch "
                    f"{last.batch_id}, so Spark has logged that batch as done, and its rows are "
                    "missing. The query is stopped: let errors reach Spark. Nothing of "
                    f"micro-batch {batch_id} was written, and Spark may log it as done as well. "
                    f"The error was: {last.failed}"
                )
            call = self._last[run_id] = BatchCall(batch_id)
            self._last.move_to_end(run_id)
            while len(self._last) > RUNS_MAX:
                self._last.popitem(last=False)
            return call


def _of_the_first(call: BatchCall) -> str:
    if call.done:
        return (
            "the first call has decided it, so its rows stand in its sinks and the batch is not "
            "run again. The rows of this second call are missing; the decision record of the "
            "batch has the source offsets to take them from."
        )
    return "the first call has not ended well, or is still under way."


def later_call(is_ours: Callable[[Any], bool], depth: int) -> str | None:
    """Where the function that Spark called goes on to call exactum again for the same batch, or
    None.

    Looks from the frame ``depth`` calls up to Spark's own: names that can still be reached from
    where each function is now and that hold one of our objects (``is_ours``). What only a function
    called later would show is not seen.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith(SPARK):
        if any(is_ours(value) for value in _loaded_later(frame)):
            return (
                f"{frame.f_code.co_name} ({frame.f_code.co_filename}, from line {frame.f_lineno} "
                "on)"
            )
        frame = frame.f_back
    return None


_LOADS = ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_ONLY_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")


def _loaded_later(frame: FrameType) -> Iterator[Any]:
    """What the names hold now that may be called from here on; ``thing.error`` is no call of
    ``thing``.
    """
    instructions = list(dis.get_instructions(frame.f_code))
    for place in _reached(frame.f_code, instructions, frame.f_lasti):
        instruction = instructions[place]
        if not instruction.opname.startswith(_LOADS):
            continue
        names = (
            instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        )
        following = instructions[place + 1] if place + 1 < len(instructions) else None
        for name in names:
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            if following is not None and following.opname in _ATTRIBUTES and name == names[-1]:
                value = getattr(value, "__dict__", {}).get(following.argval)
            yield value


def _reached(code: CodeType, instructions: list[dis.Instruction], now: int) -> set[int]:
    """The places of the instructions that may run after the one at offset ``now``, errors left
    aside.
    """
    place_of = {instruction.offset: place for place, instruction in enumerate(instructions)}
    jumps = {*dis.hasjrel, *dis.hasjabs}
    reached: set[int] = set()
    offsets = [instruction.offset for instruction in instructions]
    waiting = [
        bisect_right(offsets, now)
    ]  # ``now`` may be in a call's inline cache, which is no instruction
    while waiting:
        place = waiting.pop()
        if place in reached or place >= len(instructions):
            continue
        reached.add(place)
        instruction = instructions[place]
        if instruction.opcode in jumps and not instruction.opname.startswith("SETUP_"):
            waiting.append(place_of[instruction.argval])
        if instruction.opname not in _ENDS + _ONLY_JUMPS:
            waiting.append(place + 1)
    return reached
