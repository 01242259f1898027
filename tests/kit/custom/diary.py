"""A ``TwoPhaseCommitSink`` that writes nowhere, and notes who calls what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TwoPhaseCommitSink
from exactum.protocol.sink import Rejection


@dataclass
class Upload:
    name: str
    part: dict[str, int] | None = None


class Lines(list[tuple[Any, ...]]):
    """One for all copies of a diary."""

    def __deepcopy__(self, _: object) -> Lines:
        return self


class Diary(TwoPhaseCommitSink[Upload]):
    """``lines`` has each call of each of its copies: (which copy, method, rest). ``answers``: what
    methods return instead, or raise.
    """

    def __init__(self, name: str | None = None, **answers: Callable[[], Any]) -> None:
        super().__init__(name=name)
        self.answers = answers
        self.lines = Lines()

    def note(self, method: str, *rest: object, otherwise: Any = None) -> Any:
        self.lines.append((id(self), method, *rest))
        return self.answers.get(method, lambda: otherwise)()

    def connect(self) -> None:
        self.note("connect")

    def close(self) -> None:
        self.note("close")

    def begin_transaction(self, name: TransactionName) -> Upload:
        return self.note("begin_transaction", str(name), otherwise=Upload(str(name)))

    def invoke(self, transaction: Upload, batch: Any) -> Rejection | None:
        rejected = None
        if "too long" in batch.column("text").to_pylist():
            rejected = Rejection(batch.slice(0, 1), ("text: too long",))
        return self.note("invoke", batch.num_rows, otherwise=rejected)

    def pre_commit(self, transaction: Upload) -> Upload:
        return self.note("pre_commit", otherwise=Upload(transaction.name, {"etag": 7}))

    def commit(self, transaction: Upload) -> None:
        return self.note("commit", transaction.part)

    def abort(self, transaction: Upload) -> None:
        return self.note("abort", transaction.part)

    def recover_and_commit(self, transaction: Upload) -> None:
        return self.note("recover_and_commit", transaction.part)

    def recover_and_abort(self, transaction: Upload) -> None:
        return self.note("recover_and_abort", transaction.name)

    def verify(self, transaction: Upload) -> None:
        return self.note("verify")

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, Upload]]:
        begun = [line[2] for line in self.lines if line[1] == "begin_transaction"]
        listed = [(name, Upload(name)) for name in [*begun, "somebody-elses"]]
        return self.note("list_transactions", scope.prefix, otherwise=listed)

    def calls(self) -> list[Any]:
        return [line[1] if len(line) == 2 else line[1:] for line in self.lines]


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
