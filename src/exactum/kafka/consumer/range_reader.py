"""The bookkeeping of one partition that is read range after range, and ahead: which records are
handed out, which are kept, and what is missing. No client is known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from exactum.errors import InvariantBroken

END_OF_PARTITION = -191
"""librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF: everything below its offset has come before."""


class Messages(Protocol):
    """Records, and errors among them: see ``consumed.Consumed``."""

    @property
    def offsets(self) -> np.ndarray[Any, Any]: ...

    @property
    def errors(self) -> np.ndarray[Any, Any]: ...

    def __len__(self) -> int: ...

    def split(self, count: int) -> tuple[Any, Any]: ...

    def without(self, unwanted: np.ndarray[Any, Any]) -> Any: ...

    def free(self) -> None: ...


M = TypeVar("M", bound=Messages)
M_co = TypeVar("M_co", bound=Messages, covariant=True)


class Feed(Protocol[M_co]):
    """Where a partition's messages come from, in the order of their offsets."""

    def start(self, offset: int) -> None:
        """Go to ``offset``: what has come, and was not taken, is dropped."""
        ...

    def take(self, count_max: int) -> M_co | None:
        """Messages, at most so many; they are the caller's. None: nothing came for a while."""
        ...


class PartitionFailed(Exception):
    """The feed told an error: librdkafka's ``code``, at the ``offset`` that was read next."""

    def __init__(self, code: int, offset: int) -> None:
        super().__init__(f"error {code} at offset {offset}")
        self.code = code
        self.offset = offset


@dataclass
class _Records(Generic[M]):
    messages: M


@dataclass
class _End:
    offset: int


@dataclass
class _Failure:
    code: int


class RangeReader(Generic[M]):
    """Hands out what is visible of the ranges of one partition, each record once, in order.

    What came beyond a range is kept for the one that begins where it ended, and given back where
    another one is asked for.
    """

    def __init__(self, feed: Feed[M]) -> None:
        self._feed = feed
        self._pending: deque[_Records[M] | _End | _Failure] = deque()
        self.at: int | None = None
        """The next offset: all that is visible below it has been handed out, or was not asked for.
        None: the feed has to start anew."""
        self.until = 0
        """Where the range at hand ends."""
        self.records = 0
        """Handed out of the range at hand."""
        self.first_missing: int | None = None
        """The first offset of the range for which no record came."""

    def begin(self, first: int, until: int) -> None:
        """Read ``first`` to ``until - 1`` next.

        Raises as ``Feed.start``.
        """
        if self.at != first:
            self.forget()
            self._feed.start(first)
            self.at = first
        self.until = until
        self.records = 0
        self.first_missing = None

    def forget(self) -> None:
        """Give back what is kept; the next range starts anew."""
        self.at = None
        while self._pending:
            piece = self._pending.popleft()
            if isinstance(piece, _Records):
                piece.messages.free()

    @property
    def done(self) -> bool:
        """Whether the range is read."""
        return self.at is not None and self.at >= self.until

    def step(self, count_max: int, tolerated: Callable[[int], bool]) -> M | None:
        """The next records of the range, the caller's; None: none have come yet, or the range is
        read.

        Args:
            count_max: at most so many.
            tolerated: whether an error of this code is passed over, for the feed goes on.

        Raises:
            PartitionFailed: the feed told an error.
            InvariantBroken: records came out of order.
        """
        if self.at is None or self.done:
            return None
        at = self.at
        if not self._pending:
            messages = self._feed.take(min(count_max, self.until - at))
            if messages is not None:
                self._sort(messages)
            if not self._pending:
                return None
        piece = self._pending.popleft()
        if isinstance(piece, _Failure):
            if tolerated(piece.code):
                return None
            self.forget()
            raise PartitionFailed(piece.code, at)
        if isinstance(piece, _End):
            self._take_end(piece, at)
            return None
        return self._take_records(piece.messages, at, count_max)

    def _take_end(self, end: _End, at: int) -> None:
        if end.offset < at:
            self.forget()
            raise InvariantBroken(
                f"the partition was told to end at offset {end.offset}, after {at} was read."
            )
        if end.offset > self.until:  # which says of the next range as well that nothing more comes
            self._pending.appendleft(end)
        self._pass_to(min(end.offset, self.until), at)

    def _take_records(self, messages: M, at: int, count_max: int) -> M | None:
        offsets = messages.offsets
        if offsets[0] < at or (np.diff(offsets) <= 0).any():
            shown = f"offsets {offsets[:3].tolist()} ... {offsets[-3:].tolist()} came at {at}"
            messages.free()
            self.forget()
            raise InvariantBroken(f"records came out of order: {shown}.")
        inside = int(np.searchsorted(offsets, self.until))
        count = min(inside, count_max)
        last = int(offsets[count - 1]) if count else at - 1
        if count and last + 1 - at != count:
            missing = np.flatnonzero(offsets[:count] != np.arange(at, at + count))
            self._miss(at + int(missing[0]))
        self.at = last + 1
        taken = messages
        if count < len(messages):
            taken, rest = messages.split(count)
            self._pending.appendleft(_Records(rest))
            if count == inside:
                self._pass_to(self.until, last + 1)
        self.records += count
        return taken if count else None

    def _pass_to(self, offset: int, at: int) -> None:
        """Nothing is visible from ``at`` to ``offset - 1``."""
        if offset > at:
            self._miss(at)
        self.at = offset

    def _miss(self, offset: int) -> None:
        if self.first_missing is None:
            self.first_missing = offset

    def _sort(self, messages: M) -> None:
        """Each message is either part of records, or told by an end or an error; those are given
        back.
        """
        rest = messages
        passed = _ends_passed(messages.offsets, messages.errors)
        if passed.any():
            rest = messages.without(passed)
        while len(rest):
            wrong = np.flatnonzero(rest.errors)
            count = int(wrong[0]) if len(wrong) else len(rest)
            if count:
                records, rest = rest.split(count)
                self._pending.append(_Records(records))
            if len(rest):
                told, rest = rest.split(1)
                code, offset = int(told.errors[0]), int(told.offsets[0])
                told.free()
                self._pending.append(_End(offset) if code == END_OF_PARTITION else _Failure(code))


def _ends_passed(offsets: np.ndarray[Any, Any], errors: np.ndarray[Any, Any]) -> Any:
    """A mask of the ends between two records, in their order: the later record says as much. Who
    follows the end of a partition is told of it after each few records, and each would be an Arrow
    batch of its own.
    """
    passed = errors == END_OF_PARTITION
    passed[:1] = passed[-1:] = False
    is_record, orders = errors == 0, np.diff(offsets)
    passed[1:-1] &= is_record[:-2] & is_record[2:] & (orders[:-1] > 0) & (orders[1:] >= 0)
    return passed
