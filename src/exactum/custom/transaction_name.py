"""Names of transactions:
``exactum.query.participant.incarnation.batch.attempt.partition.try.unique``.

``str(name)`` holds letters, digits and ``. _ -`` only, so that it can be a file name, an object
key, a column or an HTTP header as it is. Names are matched part by part: what belongs to sink
``app`` is never taken for ``app-eu``'s.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from exactum.errors import SettingRefused
from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Scope, TaskName, WriteOrder

LENGTH_MAX = 200
"""Longest name in characters: leaves room for a suffix in the 255 bytes of a file name."""
_REST_MAX = 16 + 19 + 3 * 10 + 16 + 5
"""Room for incarnation, batch id, attempt, partition, try, unique part, and the dots between
them.
"""

_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]")
_NAME = re.compile(
    r"exactum\.(?P<query>[A-Za-z0-9_-]+)\.(?P<participant>[A-Za-z0-9_-]+)\.(?P<incarnation>[A-Za-z0-9_-]+)"
    r"\.(?P<batch>\d+)\.(?P<attempt>\d+)\.(?P<partition>\d+)\.(?P<try>\d+)\.(?P<unique>[0-9a-f]{16})"
)


@dataclass(frozen=True)
class TransactionScope(Scope):
    """The names of transactions of one sink of one query, over all incarnations.

    ``query_id`` is Spark's id of the query, ``participant`` the sink's name.
    """

    @property
    def prefix(self) -> str:
        """What exactly the names of this scope begin with, and no other scope's: for listing on a
        server.
        """
        return f"exactum.{escaped(self.query_id)}.{escaped(self.participant)}."

    def check(self) -> None:
        """
        Raises:
            SettingRefused: the names would be longer than ``LENGTH_MAX``.
        """
        if len(self.prefix) + _REST_MAX > LENGTH_MAX:
            raise SettingRefused(
                "SINK_NAME_LONG",
                f"The sink name {self.participant!r} is too long for query {self.query_id!r}: the "
                f"names of its transactions would be longer than {LENGTH_MAX} characters. Give the "
                "sink a shorter name=. Nothing was written.",
            )

    def name(self, order: WriteOrder, task: TaskName) -> TransactionName:
        """A new name, never given before and never again."""
        return TransactionName(
            scope=self,
            incarnation=order.run.incarnation,
            batch_id=order.batch_id,
            attempt=order.attempt,
            partition_id=task.partition_id,
            task_attempt=task.attempt_number,
            unique=secrets.token_hex(8),
        )

    def find(self, text: str) -> TransactionName | None:
        """The name that ``text`` is, or None if it is not a name of this scope, exactly."""
        name = TransactionName.parse(text)
        return name if name is not None and name.scope == self else None


@dataclass(frozen=True)
class TransactionName:
    """One transaction of one task, and no other, ever.

    ``scope`` says whose it is, ``incarnation`` which run of the query made it; ``batch_id`` and
    ``partition_id`` are Spark's. ``attempt`` is the coordinator's attempt at the epoch,
    ``task_attempt`` Spark's try of the task, and ``unique`` 16 random hexadecimal digits.
    ``str(name)`` is the name in the target; ``parse`` reads it back.
    """

    scope: TransactionScope
    incarnation: Incarnation
    batch_id: int
    attempt: int
    partition_id: int
    task_attempt: int
    unique: str

    @property
    def query_id(self) -> str:
        return self.scope.query_id

    @property
    def participant(self) -> str:
        return self.scope.participant

    def __str__(self) -> str:
        return (
            f"{self.scope.prefix}{escaped(self.incarnation)}.{self.batch_id}.{self.attempt}"
            f".{self.partition_id}.{self.task_attempt}.{self.unique}"
        )

    @staticmethod
    def parse(text: str) -> TransactionName | None:
        """The name that ``text`` is, or None: it is somebody else's."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        try:
            name = TransactionName(
                scope=TransactionScope(
                    _unescaped(match["query"]), _unescaped(match["participant"])
                ),
                incarnation=Incarnation(_unescaped(match["incarnation"])),
                batch_id=int(match["batch"]),
                attempt=int(match["attempt"]),
                partition_id=int(match["partition"]),
                task_attempt=int(match["try"]),
                unique=match["unique"],
            )
        except ValueError:
            return None
        return name if str(name) == text else None


def escaped(text: str) -> str:
    """``text`` in letters, digits, ``-`` and ``_xx`` (a byte of its UTF-8): different texts stay
    different.
    """
    return _UNSAFE.sub(lambda match: "".join(f"_{byte:02x}" for byte in match[0].encode()), text)


def _unescaped(text: str) -> str:
    """
    Raises:
        ValueError: ``text`` is not the work of ``escaped``.
    """
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1").decode()
