"""The bookkeeping of ranges: whatever comes in whatever pieces, each visible record of a range is
handed out once, and every message is given back once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactum.errors import InvariantBroken
from exactum.kafka.consumer.range_reader import END_OF_PARTITION, PartitionFailed, RangeReader

PASSING, LASTING = -195, -140


class Scripted:
    """Messages that note who gives them back: (offset, error, number of the message)."""

    def __init__(self, cells: list[tuple[int, int, int]], freed: Counter[int]) -> None:
        self.cells = cells
        self._freed = freed

    @property
    def offsets(self) -> Any:
        return np.array([cell[0] for cell in self.cells], dtype=np.int64)

    @property
    def errors(self) -> Any:
        return np.array([cell[1] for cell in self.cells], dtype=np.int32)

    def __len__(self) -> int:
        return len(self.cells)

    def split(self, count: int) -> tuple[Scripted, Scripted]:
        cells, self.cells = self.cells, []
        return Scripted(cells[:count], self._freed), Scripted(cells[count:], self._freed)

    def without(self, unwanted: Any) -> Scripted:
        cells, self.cells = self.cells, []
        marked = [(cell, bool(one)) for cell, one in zip(cells, unwanted, strict=True)]
        Scripted([cell for cell, one in marked if one], self._freed).free()
        return Scripted([cell for cell, one in marked if not one], self._freed)

    def free(self) -> None:
        cells, self.cells = self.cells, []
        self._freed.update(number for _, _, number in cells)


class Log:
    """A partition that grows: what is visible of it, and where readers find its end for now.

    It is the feed as well. ``draw`` says how much comes at once, and when errors do.
    """

    def __init__(self, visible: set[int], draw: Any) -> None:
        self.visible = visible
        self.end = 0
        self.draw = draw
        self.given = 0
        self.freed: Counter[int] = Counter()
        self.starts = 0
        self._at = 0
        self._told_end = -1
        self._ahead: list[tuple[int, int]] = []

    def start(self, offset: int) -> None:
        self.starts += 1
        self._at, self._told_end, self._ahead = offset, -1, []

    def take(self, count_max: int) -> Scripted | None:
        self._fetch()
        count = self.draw(st.integers(0, min(4, count_max, len(self._ahead))))
        cells = [(*cell, self.given + place) for place, cell in enumerate(self._ahead[:count])]
        del self._ahead[:count]
        self.given += count
        return Scripted(cells, self.freed) if cells else None

    def _fetch(self) -> None:
        """As librdkafka: what lies before the end that the answer names, or that it is reached."""
        if self._at == self.end and self._told_end != self.end:
            self._told_end = self.end
            self._ahead.append((self.end, END_OF_PARTITION))
        error = self.draw(st.sampled_from((0, 0, 0, 0, 0, 0, PASSING, LASTING)))
        if error:
            self._ahead.append((self._at, error))
        until = self.draw(st.integers(self._at, self.end)) if self._at < self.end else self._at
        self._ahead += [(o, 0) for o in range(self._at, until) if o in self.visible]
        self._at = until


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_answers(data: st.DataObject) -> None:
    visible = data.draw(st.sets(st.integers(0, 25)))
    log = Log(visible, data.draw)
    reader: RangeReader[Scripted] = RangeReader(log)
    at = 0
    for _ in range(data.draw(st.integers(1, 5))):
        first = data.draw(st.one_of(st.just(at), st.integers(0, 20)))
        until = data.draw(st.integers(first, 26))
        log.end = max(log.end, data.draw(st.integers(until, 26)))
        found = read(reader, first, until, data.draw(st.integers(1, 6)))
        expected = [offset for offset in range(first, until) if offset in visible]
        assert found == expected
        assert reader.records == len(expected)
        missing = [offset for offset in range(first, until) if offset not in visible]
        assert reader.first_missing == (missing[0] if missing else None)
        at = until
    reader.forget()
    assert log.freed == Counter(range(log.given)), "each message once"


def read(reader: RangeReader[Scripted], first: int, until: int, count_max: int) -> list[int]:
    """The offsets of a range; once more from its beginning where the feed fails."""
    for tolerated in [{PASSING}] * 49 + [{PASSING, LASTING}]:
        reader.begin(first, until)
        found: list[int] = []
        with suppress(PartitionFailed):
            for _ in range(500):
                if reader.done:
                    return found
                records = reader.step(count_max, tolerated.__contains__)
                if records is not None:
                    assert len(records) <= count_max
                    found += records.offsets.tolist()
                    records.free()
    raise AssertionError("the range was not read to its end")


class Answers:
    """A feed of given answers."""

    def __init__(self, *answers: list[tuple[int, int]]) -> None:
        self.answers = list(answers)
        self.freed: Counter[int] = Counter()
        self.started: list[int] = []

    def start(self, offset: int) -> None:
        self.started.append(offset)

    def take(self, _count_max: int) -> Scripted | None:
        if not self.answers:
            return None
        cells = self.answers.pop(0)
        return Scripted([(offset, error, offset) for offset, error in cells], self.freed)


def offsets(reader: RangeReader[Scripted], steps: int = 6, count_max: int = 100) -> list[int]:
    found = []
    for _ in range(steps):
        records = reader.step(count_max, lambda _: False)
        if records is not None:
            found += records.offsets.tolist()
            records.free()
    return found


def test_records_behind_an_end() -> None:
    """An answer of records, an end and more records, of which the range has the first alone: the
    others are the next range's, in their order."""
    reader: RangeReader[Scripted] = RangeReader(
        feed := Answers([(3, 0), (4, 0), (5, END_OF_PARTITION), (5, 0), (6, 0)])
    )
    reader.begin(3, 4)
    assert offsets(reader) == [3]
    reader.begin(4, 6)
    assert offsets(reader) == [4, 5]
    reader.begin(6, 7)
    assert offsets(reader) == [6]
    assert feed.started == [3]


def test_ends_between_records_part_nothing() -> None:
    """Who follows the end of a partition is told of it again and again: the records around are one
    batch, and a gap behind such an end is noticed.
    """
    few: list[tuple[int, int]] = []
    for offset in (3, 4, 5, 8, 9):
        few += [(offset, 0), (offset + 1, END_OF_PARTITION)]
    reader: RangeReader[Scripted] = RangeReader(feed := Answers(few))
    reader.begin(3, 10)
    assert offsets(reader, steps=1) == [3, 4, 5, 8, 9]
    assert reader.done
    assert reader.first_missing == 6
    reader.forget()
    assert sum(feed.freed.values()) == len(few)


def test_more_is_kept_than_is_asked_for_at_once() -> None:
    reader: RangeReader[Scripted] = RangeReader(Answers([(3, 0), (4, 0), (5, 0), (6, 0)]))
    reader.begin(3, 4)
    assert offsets(reader) == [3]
    reader.begin(4, 7)
    assert [offsets(reader, steps=1, count_max=1) for _ in range(3)] == [[4], [5], [6]]
    assert reader.done
    assert reader.first_missing is None


def test_an_end_beyond_the_range() -> None:
    """It is told once, and says of both ranges that nothing more comes."""
    reader: RangeReader[Scripted] = RangeReader(Answers([(10, END_OF_PARTITION)]))
    for first, until in ((3, 7), (7, 10)):
        reader.begin(first, until)
        assert offsets(reader, steps=2) == []
        assert reader.done
        assert reader.first_missing == first


def test_an_end_before_the_range_s() -> None:
    """Nothing is known of what lies between: the reader waits."""
    reader: RangeReader[Scripted] = RangeReader(Answers([(3, 0), (5, END_OF_PARTITION)]))
    reader.begin(3, 7)
    assert offsets(reader) == [3]
    assert not reader.done
    assert reader.at == 5


@pytest.mark.parametrize(
    "answers",
    [[[(2, 0)]], [[(5, 0), (5, 0)]], [[(6, 0), (5, 0)]], [[(5, 0)], [(3, END_OF_PARTITION)]]],
    ids=["before the range", "twice", "backwards", "an end that was passed"],
)
def test_out_of_order(answers: list[list[tuple[int, int]]]) -> None:
    """What cannot be is refused: better no answer than a wrong one. The next try starts anew."""
    reader: RangeReader[Scripted] = RangeReader(feed := Answers(*answers))
    reader.begin(3, 9)
    with pytest.raises(InvariantBroken):
        offsets(reader)
    reader.begin(3, 9)
    assert feed.started == [3, 3]
    given = sum(len(answer) for answer in answers)
    assert sum(feed.freed.values()) == given
