"""``TwoPhaseCommitSink``: the base class of a target of your own, in the shape of Flink's.

    class Uploads(TwoPhaseCommitSink[Upload]):
        def begin_transaction(self, name): ...     in a task, at its first rows
        def invoke(self, upload, batch): ...       in the task, for each Arrow record batch
        def pre_commit(self, upload): ...          in the task, at its end: durable, still revocable
                                                   -- here the driver records COMMIT --
        def commit(self, upload): ...              on the driver: visible
        def abort(self, upload): ...               in the failing task, or on the driver
        def list_transactions(self, scope): ...    on the driver: what is open for this query

For a reader of Flink's ``TwoPhaseCommitSinkFunction``: the methods have the same meaning. Three
things differ. ``begin_transaction`` is given a name that is unique for ever. ``invoke`` takes a
record batch, not a record. And the commit runs on the driver, not in the task that wrote, so a
transaction must be one that another process can finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

import msgspec

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.protocol.inspection import Inspector
from exactum.protocol.sink import DEAD_LETTER_COLUMNS, NotAFunction, OpenSink, QueryRun, Rejection
from exactum.storage.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class TransactionLost(Exception):
    """Raise this in ``commit``, ``recover_and_commit`` or ``verify`` when the target has certainly
    lost it.

    Its text should say what the target said. exactum stops the query with ``HeuristicOutcome``
    (before the decision: aborts the epoch). Never raise it because the target did not answer: rows
    would be reported lost that are not.
    """


class TwoPhaseCommitSink(NotAFunction, ABC, Generic[T]):
    """A target of your own. ``T`` is your transaction: whatever names one in the target: a path, an
    upload id.

    *The object.* The one that you make is a template. Each half of each run works on a copy of its
    own, made by pickling's rules (``__getstate__``, if you have one; start it from
    ``super().__getstate__()``): one copy on the driver for a run, one copy on an executor for each
    task that has rows. So the class must live in a module that the executors can import, its
    attributes must pickle, and what one copy notes in ``self`` no other one sees: all that is
    needed to finish a transaction belongs into ``T``. Connections are made in ``connect``, never in
    ``__init__``. A copy is used by one thread at a time, not always by the same one.

    *The transaction.* It is written into the decision record, as ``serialize`` gives it: by default
    JSON, so let it be text, a dictionary or a dataclass (``class
    Mine(TwoPhaseCommitSink[MyDataclass])``). Keep it small, and keep secrets out of it.

    *Errors.* Whatever ``begin_transaction``, ``invoke`` or ``pre_commit`` raise fails the task: it
    is aborted and tried again by Spark. What the driver's methods raise stops the query, and its
    next start calls them again: raise ``Unavailable`` where the target did not answer,
    ``TransactionLost`` where it has lost the transaction; anything else is taken for "nobody knows"
    (``OutcomeUnknown``), which the next start settles in the same way. Never return from ``commit``
    unless the rows are visible, and return nothing from it: what ``verify``, ``commit`` or
    ``abort`` return (False, a response, a coroutine) is never taken for a success, but stops the
    query with ``CodeFailed``.

    *Under weaker guarantees* (``at_least_once``, ``at_most_once``) the task itself calls ``commit``
    after ``pre_commit``, and no record names the transaction: one that a crash leaves open is
    aborted. What earlier runs left is committed and aborted as ever.

    Args:
        name: name of this sink in the decision records; default: the class's name. Keep it from
            start to start.
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.
    """

    _name: str | None = None
    _rows: Callable[[Any], Any] | None = None
    _transaction_type: ClassVar[Any] = Any
    """What JSON is read as: the dataclass in the brackets, or plain values."""

    def __init__(
        self, *, name: str | None = None, rows: Callable[[Any], Any] | None = None
    ) -> None:
        self._name = name
        self._rows = rows

    # ---- in a task, on an executor -------------------------------------------------------------

    @abstractmethod
    def begin_transaction(self, name: TransactionName) -> T:
        """Open a transaction and return what names it.

        Called at most once by each try of a task, when its first rows arrive; a partition without
        rows opens nothing. Speculative and retried tasks write the same rows at the same time in
        transactions of their own. A crash after this leaves the transaction open: put ``str(name)``
        into the target (a file name, a key, a column), so that ``list_transactions`` can tell whose
        it is.
        """

    @abstractmethod
    def invoke(self, transaction: T, batch: pa.RecordBatch) -> Rejection | None:
        """Write one Arrow record batch (never empty) into the transaction. No reader may see any of
        it yet.

        Called in order, by the process that began it. It may meet a transaction that the driver has
        aborted meanwhile (this task was given up and does not know): raise, or write where nobody
        looks, and never bring it back to life.

        Returns:
            The rows that the target can never take, with the reason for each, after writing all
            others; None: all are written.
        """

    @abstractmethod
    def pre_commit(self, transaction: T) -> T | None:
        """Make everything written durable, and leave it invisible and revocable.

        Called once, after the last ``invoke``, by the same process. When it returns, the process
        may die and the target may restart: ``commit`` on the driver must still succeed, with the
        transaction alone.

        Returns:
            The transaction to be used from now on, if it has changed (a part list, say); None: the
            same.
        """

    # ---- on the driver -------------------------------------------------------------------------

    @abstractmethod
    def commit(self, transaction: T) -> None:
        """Make it visible. Must be idempotent: "it is committed already" is a success, also days
        later.

        Called by the driver of the run that wrote it, only after COMMIT is recorded, so it must not
        refuse for any reason that ``pre_commit`` could have found. Called again after any crash,
        and perhaps by two drivers at the same time (an old one that was stalled). Never called for
        a transaction that was aborted, unless somebody outside did that.

        Raises:
            TransactionLost: it is gone and was not committed.
            Unavailable: the target did not answer.
        """

    @abstractmethod
    def abort(self, transaction: T) -> None:
        """Undo it. Must be idempotent: one that is aborted or was never there is a success; a
        committed one stays.

        Called by the task that fails, with the transaction before or after ``pre_commit``, and by
        the driver for leftovers of its own run, as ``list_transactions`` shows them. Never for one
        that a COMMIT names and that is not committed yet.
        """

    def recover_and_commit(self, transaction: T) -> None:
        """``commit`` for a transaction that another run prepared: that run died after its decision,
        or seemed to.

        It may still live and commit at the same time. Default: ``commit``.
        """
        self.commit(transaction)

    def recover_and_abort(self, transaction: T) -> None:
        """``abort`` for a transaction of another run, which may have died anywhere: begun, half
        written or prepared.

        A task of that run may still be writing to it. Default: ``abort``.
        """
        self.abort(transaction)

    def list_transactions(
        self, scope: TransactionScope
    ) -> Iterable[tuple[TransactionName | str, T]]:
        """Every transaction now open in the target under this query's name, of this and of all
        earlier runs.

        Called by the driver at each start, once in each epoch, up to three times in a pause behind
        one, and after a failure: let it be one cheap request, such as a listing by
        ``scope.prefix``, with which exactly the names of this scope begin. Give the name, or its
        text, and a transaction that ``abort`` understands. Every one that is pre-committed must be
        there; those begun should be. Ones that are settled already do no harm. Names of other
        scopes are ignored.

        Default: none. Then the transactions of killed tasks and crashed runs stay open in the
        target until it times them out or you remove them: nothing is doubled or lost by it, but
        nothing sweeps them. A warning is logged at start.
        """
        return ()

    def verify(self, transaction: T) -> None:
        """Look, before the decision, that a pre-committed transaction is still there and has time
        left.

        Called by the driver for each transaction of the epoch. Whatever it raises aborts the epoch.
        Default: nothing.
        """

    # ---- in both -------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open what this copy needs. Called before any method above: once on the driver at start,
        where it should check all that can be checked, and once in each task that has rows. Default:
        nothing."""

    def close(self) -> None:
        """Let go of what ``connect`` opened; leave every transaction as it is. Called once for each
        ``connect`` that returned, if the process lives. Default: nothing."""

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Refuse a frame that cannot be written; called at start, on the template. Default: all are
        welcome.

        ``columns`` are (name, Spark's simple type string).

        Raises:
            FrameRefused: a column is missing or its type cannot be written.
        """

    def serialize(self, transaction: T) -> str:
        """The transaction as text. Default: JSON of text, numbers, lists, dictionaries with text as
        keys, None, or a dataclass of these; what would not be the same again is refused. Called in
        the task that prepared it, and on the driver.
        """
        return msgspec.json.encode(transaction).decode()

    def deserialize(self, text: str) -> T:
        """The transaction that ``serialize`` was given. Later versions of your class must read
        older texts.
        """
        transaction: T = msgspec.json.decode(text, type=self._transaction_type)
        return transaction

    # ---- the sink port ---------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name or type(self).__name__

    @property
    def rows(self) -> Callable[[Any], Any] | None:
        return self._rows

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return DEAD_LETTER_COLUMNS

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """Called by exactum. ``connect`` and ``close`` are yours to override, not this."""
        from exactum.custom.two_phase_run import TwoPhaseParticipant, TwoPhaseWriterFactory

        scope = TransactionScope(run.query_id, participant)
        trace = {
            "class": f"{type(self).__module__}.{type(self).__qualname__}",
            "names": f"{scope.prefix}...",
        }
        return OpenSink(
            TwoPhaseParticipant(self, run, scope),
            TwoPhaseWriterFactory(self, scope),
            trace=trace,
        )

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """Called by exactum, for an operator's commands: ``connect`` and ``list_transactions``."""
        from exactum.custom.two_phase_run import TwoPhaseInspector

        return TwoPhaseInspector(self, TransactionScope(query_id, participant))

    def __getstate__(self) -> dict[str, Any]:
        """``rows`` stays on the driver: it may hold on to a session."""
        return {**self.__dict__, "_rows": None}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            origin, arguments = get_origin(base), get_args(base)
            is_ours = isinstance(origin, type) and issubclass(origin, TwoPhaseCommitSink)
            if is_ours and arguments and isinstance(arguments[0], type):
                cls._transaction_type = arguments[0] if is_dataclass(arguments[0]) else Any
