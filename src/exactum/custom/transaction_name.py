"""Names of transactions: ``exactum.scope.incarnation.batch.attempt.partition.try.unique``.

``str(name)`` holds letters, digits and dots only, at most 150 characters, so that it can be a file
name, an object key, a column or an HTTP header as it is. ``scope`` is a hash of the query's id and
the sink's name, of one length: no scope's names begin as another's do.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Scope, TaskName, WriteOrder

_IN_SCOPE = re.compile(
    r"(?P<incarnation>[0-9A-Za-z]{1,64})\.(?P<batch>\d+)\.(?P<attempt>\d+)\.(?P<partition>\d+)"
    r"\.(?P<try>\d+)\.(?P<unique>[0-9a-f]{16})"
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
        return f"exactum.{self.digest[:32]}."

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
        if not text.startswith(self.prefix):
            return None
        match = _IN_SCOPE.fullmatch(text.removeprefix(self.prefix))
        if match is None:
            return None
        name = TransactionName(
            scope=self,
            incarnation=Incarnation(match["incarnation"]),
            batch_id=int(match["batch"]),
            attempt=int(match["attempt"]),
            partition_id=int(match["partition"]),
            task_attempt=int(match["try"]),
            unique=match["unique"],
        )
        return name if str(name) == text else None


@dataclass(frozen=True)
class TransactionName:
    """One transaction of one task, and no other, ever.

    ``scope`` says whose it is, ``incarnation`` which run of the query made it; ``batch_id`` and
    ``partition_id`` are Spark's. ``attempt`` is the coordinator's attempt at the epoch,
    ``task_attempt`` Spark's try of the task, and ``unique`` 16 random hexadecimal digits.
    ``str(name)`` is the name in the target; ``TransactionScope.find`` reads it back.
    """

    scope: TransactionScope
    incarnation: Incarnation
    batch_id: int
    attempt: int
    partition_id: int
    task_attempt: int
    unique: str

    def __str__(self) -> str:
        return (
            f"{self.scope.prefix}{self.incarnation}.{self.batch_id}.{self.attempt}"
            f".{self.partition_id}.{self.task_attempt}.{self.unique}"
        )
