"""Counts what a reader sees. Pure: no Kafka and nothing of exactum, so that it can judge both."""

from __future__ import annotations

from exactum.ops.demo.order import number_of


class Tally:
    """What was seen so far of the orders 0, 1, 2, ... in the order of a reader.

    ``committed`` counts all records, ``duplicates`` those whose number was seen before,
    ``disordered`` new ones that come after a later order of their customer or in another partition
    than the customer's orders before, ``damaged`` those that are no shouted order.
    """

    def __init__(self) -> None:
        self.committed = self.duplicates = self.disordered = self.damaged = 0
        self._seen: set[int] = set()
        self._last: dict[bytes, tuple[int, int]] = {}

    def add(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Count one record."""
        self.committed += 1
        number = number_of(key, value)
        if number is None or key is None:
            self.damaged += 1
        elif number in self._seen:
            self.duplicates += 1
        else:
            self._seen.add(number)
            last_partition, last = self._last.get(key, (partition, -1))
            self.disordered += last_partition != partition or number < last
            self._last[key] = (partition, max(last, number))

    @property
    def distinct(self) -> int:
        """How many different orders were seen."""
        return len(self._seen)

    def missing(self, produced: int) -> int:
        """How many of the orders below ``produced`` were not seen."""
        return sum(number not in self._seen for number in range(produced))

    def unexpected(self, produced: int) -> int:
        """How many numbers were seen that were never produced."""
        return sum(number >= produced for number in self._seen)

    def __eq__(self, other: object) -> bool:
        """Whether both saw the same numbers, the same number of times."""
        if not isinstance(other, Tally):
            return NotImplemented
        mine = (self.committed, self.duplicates, self.damaged, self._seen)
        return mine == (other.committed, other.duplicates, other.damaged, other._seen)

    __hash__ = None  # type: ignore[assignment]  # it changes
