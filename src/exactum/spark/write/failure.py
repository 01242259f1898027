"""Carries an error from a task to the driver through Spark, which passes on nothing but text.

A task's exception reaches the driver as the text of its traceback, wrapped by Spark two or three
times. So the task raises ``TaskFailed``, whose text holds one marker line of JSON; the driver finds
it and raises exactum's own error class again, with the same message. What Spark's Kafka source is
denied in a task, or cannot hold, has no marker, and is known by its Java class. Whatever
else Spark or another library raises becomes ``EpochAborted`` or ``UnknownFailure``.
"""

from __future__ import annotations

import json
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path

from exactum import errors
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.protocol.sink import TaskName
from exactum.values.excerpt import cut

MARKER = "exactum-task-failed:"
_MARKED = re.compile(re.escape(MARKER) + r" (\{.*\})")
_LOST = re.compile(r"Lost task \S+ in stage .*?\): ")
_TRACEBACK = "Traceback (most recent call last):"
_NAME = r"[A-Za-z_][\w.$]*(?:Error|Exception|Failure|Unavailable|FetchFailed|TaskKilled)\b"
_NAMES = re.compile(rf"(?:^|\n|\): |: |Caused by: )({_NAME})")
_LINES = re.compile(rf"^{_NAME}.*$", re.MULTILINE)
_PASSING = re.compile(
    r"connect|time.?out|timed.?out|interrupt|network|socket|transport|available|operational|"
    r"interface|rpc|remote|http|server|busy|too.?many|retry|throttl|IOException|OSError|EOF|"
    r"Memory|URLError|gaierror|ExecutorLost|FetchFailed|TaskKilled|KafkaException|DeliveryError|SqlFailure",
    re.IGNORECASE,
)
"""In the name of an error, of Python or Java, for which the rows are not to blame."""

LASTING = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    pickle.PickleError,
    struct.error,
)
"""What Python, and pyarrow, raise for a mistake or for a value, and not for a connection, a disk
or memory.
"""


class TaskFailed(Exception):
    """Raised in a task. ``str`` says what happened, where, and ends with the marker line."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    @staticmethod
    def of(
        error: BaseException, task: TaskName, also: str = "", *, code: str | None = None
    ) -> TaskFailed:
        """``error`` of ``task``; ``also`` is added to the message (what went wrong during
        clean-up).

        ``code``: whose code raised it, and on what; None: what gives the task its rows, which is
        cut short where Spark cancels the task, and then fails in any way.
        """
        where = f"in the task of partition {task.partition_id}, attempt {task.attempt_number}"
        if isinstance(error, errors.ExactumError):
            return TaskFailed.carrying(error.followed_by(f"{also} ({where})"))
        what = f"{type(error).__name__}: {error}{also} ({where})"
        if code is not None and isinstance(error, LASTING):
            return TaskFailed.carrying(
                errors.CodeFailed(
                    "CODE_FAILED",
                    f"{what}. The code of {code} failed at {place_of(error)}, and a new start "
                    "gives it the same rows. If it is yours, correct it, refuse such rows, or "
                    "raise exactum.errors.Unavailable for what may pass; else please report it.",
                )
            )
        by = "" if code is None else f", by the code of {code} at {place_of(error)}"
        return TaskFailed.carrying(unknown(f"{what}{by}", error))

    @staticmethod
    def carrying(error: errors.ExactumError) -> TaskFailed:
        ours = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        carried = {"error": ours.__name__, "arguments": error.args}
        return TaskFailed(f"{error}\n{MARKER} {json.dumps(carried)}")


def carried_by(error: BaseException) -> errors.ExactumError | None:
    """The exactum error that ``error``, raised by Spark on the driver, carries; None if it carries
    none.
    """
    text = str(error)
    found = _MARKED.search(text)
    if found is None:
        return said_in(text)
    try:
        value = json.loads(found.group(1))
        # KafkaRecords.java gives a message alone: of a timestamp that Spark cannot hold.
        given = value.get("arguments") or ["SOURCE_TIMESTAMP", value["message"]]
        name, arguments = str(value["error"]), [str(each) for each in given]
    except (ValueError, KeyError, TypeError):
        return None
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.ExactumError):
        return kind(*arguments)
    return SettingRefused(
        "EXECUTOR_VERSION",
        f"{name}: {arguments[-1]} (This driver's exactum has no such error: its executors run "
        "another version. Install the same one everywhere.)",
    )


def thrown(error: BaseException) -> errors.ExactumError | None:
    """What a task of Spark, or a function in Python, threw, by the text of Spark's error; None
    where it is of neither.
    """
    carried, text = carried_by(error), str(error)
    lost = _LOST.search(text)
    if carried is not None or (lost is None and _TRACEBACK not in text):
        return carried
    head = text[0 if lost is None else lost.end() :].partition("\n\tat ")[0]
    said = [line for line in _LINES.findall(head) if _TRACEBACK not in line]
    return unknown((said or [line for line in head.splitlines() if line[:1].strip()])[-1], error)


def is_of_task(text: str) -> bool:
    """Whether a task of Spark, or a function in Python, threw what Spark's error says."""
    return MARKER in text or _TRACEBACK in text or _LOST.search(text) is not None


def unknown(what: str, error: BaseException) -> errors.EpochAborted:
    """``what`` another library has raised with ``error``."""
    what = what.rstrip(".")
    names = [kind.__name__ for kind in type(error).__mro__] + _NAMES.findall(str(error))
    if any(map(_PASSING.search, names)):
        return errors.EpochAborted(f"{what}. The attempt is void; start it again.")
    return errors.UnknownFailure(
        f"{what}. The attempt is void. If it comes again with the same rows, correct them, or the "
        "code that cannot take them."
    )


def place_of(error: BaseException) -> str:
    """The innermost line of code that raised it, as ``writer.py:123``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown line"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


# ---- in Spark's words ----------------------------------------------------------------------------
# There Spark's own advice loses records, and a Java trace stands around it.

_REASON = re.compile(r"^Reason: (.*?)\.?(?: SQLSTATE.*)?$", re.MULTILINE)
LINE_MAX = 300
OF_SPARKS_LOGS = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark has found a file of another run in its own logs."""


def _gone(found: re.Match[str]) -> CheckpointRefused:
    reason = _REASON.search(found.string)
    return CheckpointRefused(
        "SOURCE_GONE",
        "Kafka lacks what the checkpoint reads next: "
        f"{reason[1] if reason else 'Spark does not say what'}.\nWas another program started on "
        "it? Remove its offsets/N (docs/misuse.md). Were topics deleted or cleaned? Begin a new "
        "checkpoint. Nothing more was written.\nfailOnDataLoss=False may read a topic "
        "from its beginning: its rows come twice.",
    )


_SAID: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], errors.ExactumError]], ...] = (
    (
        re.compile(r"TopicAuthorizationException: Not authorized to access topics: \[([^\]]*)\]"),
        lambda found: SettingRefused(
            "SOURCE_NOT_ALLOWED",
            f"The Kafka source: the brokers do not let this user read {found[1]}. The user needs "
            "READ on the topic (docs/reference/rights.md lists the ACLs). Nothing of this batch "
            "was written.",
        ),
    ),
    (
        re.compile(r"ArithmeticException: long overflow(?:\n\tat .*)*KafkaRecordToRowConverter"),
        lambda _: errors.RowsRefused(
            "SOURCE_TIMESTAMP",
            "The Kafka source: Spark cannot hold the timestamp of a record, which should be "
            "milliseconds since 1970. Nothing of its epoch is visible. Find the record with "
            "kafka-get-offsets --time 9223372036854775. Where Kafka is read in columns "
            "(docs/source.md), exactum.decode() can put such records aside.",
        ),
    ),
    (  # what Spark was given in place of offsets, or was thrown by exactum's source
        re.compile(
            r"\[(SOURCE_START|TOPIC_CHANGED)\] (exactum refuses .*?"
            r"(?:choose another start=|start again when it has ended|Nothing was written\.))"
        ),
        lambda found: (SettingRefused if found[1] == "SOURCE_START" else CheckpointRefused)(
            found[1], found[2]
        ),
    ),
    (
        re.compile(
            r"^An error occurred while calling o\d+\.start\.\n: \S+: "
            r"(?:mkdir of (?:file:)?(.+) failed"
            r"|Destination exists and is not a directory: (.+)"
            r"|(.+) \(Permission denied\))$",
            re.MULTILINE,
        ),
        lambda found: SettingRefused(
            "CHECKPOINT_UNMADE",
            f"The query was not started: Spark cannot make or write {found[found.lastindex or 0]}. "
            "Give it a checkpoint in a folder that this user may write. Nothing was written.",
        ),
    ),
    (
        re.compile("Some data may have been lost because they are not available in Kafka any more"),
        _gone,
    ),
    (  # the second for the logs of sources
        re.compile(f"{OF_SPARKS_LOGS}|Multiple streaming queries are concurrently using"),
        lambda _: errors.Fenced(
            f"Spark found the next batch in the checkpoint already ({OF_SPARKS_LOGS}): "
            "another run of this query has taken over, or an older one woke up. This run stops "
            "before it writes anything: run the query in one place only."
        ),
    ),
    (
        re.compile("^.*ExpiredToken.*$", re.MULTILINE),
        lambda found: errors.Unavailable(
            "An object store answered with ExpiredToken: credentials of Spark, or of code in the "
            "query, have expired. Give new ones and start the query again; it settles the "
            f"micro-batch at hand.\n{cut(found[0].strip(), LINE_MAX)}"
        ),
    ),
)


def said_in(spoken: str) -> errors.ExactumError | None:
    """What Spark has said, or what it runs on, as exactum says it; None: nothing that is known."""
    found = ((pattern.search(spoken), error) for pattern, error in _SAID)
    return next((error(match) for match, error in found if match is not None), None)
