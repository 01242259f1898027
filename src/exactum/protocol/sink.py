"""The sink port: a sink as the user configures it, and the writer that its tasks run on the
executors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from exactum.errors import SettingRefused
from exactum.protocol.model import Incarnation, PreparedTransaction
from exactum.protocol.participant import Participant, Sweepable
from exactum.storage.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Scope:
    """Everything that one participant of one query may open, over all incarnations. Two scopes
    never share a name in a target.
    """

    query_id: str
    participant: str

    @property
    def digest(self) -> str:
        """SHA-256 of both, 64 hexadecimal digits. Names in targets are made of it: it never
        changes.
        """
        return hashlib.sha256(json.dumps([self.query_id, self.participant]).encode()).hexdigest()


class Guarantee(Enum):
    """What a query promises of its rows."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


Committed = Callable[[], Sequence[PreparedTransaction]]


def nothing_committed() -> Sequence[PreparedTransaction]:
    """Of a run that nobody has decided anything for."""
    return ()


@dataclass(frozen=True)
class QueryRun:
    """One run of one query: what names everything that is opened on its behalf. ``staging`` is
    where rows may wait in files until their epoch is decided; None: no such place is known.
    ``number`` is which run of its checkpoint it is; 0: they are not counted. ``committed``, asked
    by a sink that would make its target: what the log has as committed, of all sinks. It raises as
    ``DecisionLog.read``.
    """

    query_id: str
    incarnation: Incarnation
    guarantee: Guarantee
    staging: Storage | None = None
    number: int = 0
    committed: Committed = nothing_committed


@dataclass(frozen=True)
class WriteOrder:
    """What the driver tells the tasks of one attempt.

    ``sequence`` counts the write jobs of this incarnation from 1. When a task of sequence n starts,
    every transaction prepared under a smaller sequence is settled; writers reuse their ids by it.
    """

    run: QueryRun
    batch_id: int
    attempt: int
    sequence: int


@dataclass(frozen=True)
class TaskName:
    """Which task this is, as Spark counts: for error messages and for at-most-once."""

    partition_id: int
    attempt_number: int
    stage_attempt_number: int

    @property
    def first_try(self) -> bool:
        return self.attempt_number == 0 and self.stage_attempt_number == 0


@dataclass(frozen=True)
class Rejection:
    """Rows that a target cannot take: ``rows`` is an Arrow record batch of them, in the columns of
    the frame.

    ``reasons`` has one text for each row: which key, which column, and which rule of the target it
    breaks. The writer has written all the other rows of the batch. Whoever called it writes these
    to the epoch's dead letters, or stops the epoch.

    Raises:
        ValueError: there are more or fewer reasons than rows, so some rows would go nowhere.
        TypeError: ``reasons`` is one text.
    """

    rows: pa.RecordBatch
    reasons: tuple[str, ...]

    def __post_init__(self) -> None:
        given: Any = self.reasons
        if isinstance(given, str):
            raise TypeError(
                f"Rejection: reasons is one text, {given!r}, and must be a tuple with a "
                "text for each row."
            )
        if len(self.reasons) != self.rows.num_rows:
            raise ValueError(
                f"Rejection: {self.rows.num_rows} rows and {len(self.reasons)} reasons; give one "
                "for each row."
            )


class Writer(Protocol):
    """Executor half of a sink: one for each task. Used by one thread."""

    def write(self, batch: pa.RecordBatch) -> Rejection | None:
        """Write one Arrow record batch. Nothing of it is visible to readers yet.

        Returns the rows that the target can never take (too long, null where none may be), if there
        are any.
        """

    def prepare(self) -> PreparedTransaction | None:
        """Make all rows durable and revocable, and return what finishes them; None when there were
        none.

        Under at-least-once and at-most-once the rows are visible when this returns None.
        """

    def abort(self) -> None:
        """Undo, or leave it to the driver, which sweeps. Called when the task fails, also after
        ``prepare``; must not raise for the target."""


class WriterFactory(Protocol):
    """Picklable; goes to the executors and opens a writer there."""

    def open(self, order: WriteOrder, task: TaskName) -> Writer: ...


DEAD_LETTER_COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("sink", "string"),
    ("error", "string"),
    ("source_topic", "string"),
    ("source_partition", "int"),
    ("source_offset", "bigint"),
    ("source_timestamp", "timestamp"),
    ("row_json", "string"),
)
"""(name, Spark type) of what a dead letter is written as: the original bytes, who refused it, why,
whence it came, and the whole row."""

DEAD_LETTERS = "dead letters"
"""Name of the participant that takes dead letters."""


class Sink(Protocol):
    """A target as the user configures it. Connects to nothing by itself.

    ``rows`` is the sink's own view of the batch, ``exactum.Rows`` or a function from Spark's
    DataFrame to a DataFrame, or None for the batch as it is. It stays on the driver; all else that
    goes to the executors must pickle.

    One object may be given to several queries at once, so it learns nothing of any of them: what a
    run needs to know comes to ``open`` by value.
    """

    @property
    def name(self) -> str:
        """Default name of its participant; the adapter makes it unique within the query."""

    @property
    def rows(self) -> Callable[[Any], Any] | None: ...

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        """The columns, as in ``check_columns``, in which this sink takes dead letters:
        ``DEAD_LETTER_COLUMNS``, or for Kafka key, value and headers."""

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Check the frame's columns, given as (name, Spark's simple type string). Remembers
        nothing.

        Raises:
            FrameRefused: a column is missing or its type cannot be written.
        """

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """Connect, check everything that can be checked before the first row, and return both
        halves.

        ``columns`` are those that this run writes, as they were given to ``check_columns``.

        Raises:
            FrameRefused: the target cannot take these columns.
            SettingRefused: the settings cannot hold the guarantee.
            Unavailable: the target did not answer.
        """


def participant_names(sinks: Sequence[Sink]) -> list[str]:
    """The sinks' names, the later of equal ones numbered: ``name``, ``name#2``, ... in the order
    given.
    """
    names: list[str] = []
    for sink in sinks:
        name, number = sink.name, 1
        while name in names:
            number += 1
            name = f"{sink.name}#{number}"
        names.append(name)
    return names


Reach = Callable[[str, Mapping[str, str]], Sweepable | None]
"""Of a former sink's participant name and trace: what lists and aborts what it left, or None."""


def out_of_reach(participant: str, trace: Mapping[str, str]) -> None:
    """A sink that reaches nobody's transactions but its own."""


class NotAFunction:
    """A sink given to ``foreachBatch`` itself, which Spark would call: says what to write
    instead.
    """

    def __call__(self, *_: object) -> NoReturn:
        raise SettingRefused(
            "SINKS_WANTED",
            f"{self!r} was called like a function: a sink cannot be given to foreachBatch itself. "
            f"Write exactum.exactly_once({type(self).__name__}(...)).start(frame.writeStream, "
            "checkpoint=...). Nothing was written.",
        )


@dataclass(frozen=True)
class OpenSink:
    """Both halves of a sink for one run: the driver's participant and the tasks' writer factory.

    ``target`` names the one place that it writes to, the same for every sink that writes there;
    None where a sink cannot tell. ``folder``: where readers list all that lies below, the folder's
    true path or a prefix; empty where nobody lists. ``trace`` is what finds the transactions that
    it leaves open (no secrets; empty: it leaves none that anybody could find), and ``reach`` what
    finds them by this sink's connection for a sink that the query had before. ``left_out`` are
    columns that it was given and that its writers do not take. ``timeout_ms``: how long its target
    lets a transaction be open. ``makes_versions``: each epoch with rows is a version of its target,
    which keeps them all until somebody tidies up.
    """

    participant: Participant
    writers: WriterFactory
    target: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict)
    reach: Reach = out_of_reach
    left_out: frozenset[str] = frozenset()
    folder: str = ""
    timeout_ms: int | None = None
    makes_versions: bool = False


Write = Callable[[WriteOrder], Sequence[PreparedTransaction]]
"""Runs the write job of an attempt and returns what its winning tasks prepared."""
Ready = Callable[[WriteOrder], None]
"""Called before an attempt is made, or put on record as begun; raises where it must not be."""


def refuse_nothing(order: WriteOrder) -> None:
    """A ``Ready`` for who has nothing to look at."""
