"""Carries an error from a task to the driver through Spark, which passes on nothing but text.

A task's exception reaches the driver as the text of its traceback, wrapped by Spark two or three
times. So the task raises ``TaskFailed``, whose text holds one marker line of JSON; the driver finds
it and raises exactum's own error class again, with the same message. What Spark's Kafka source is
denied in a task, or cannot hold, has no marker, and is known by its Java class.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from exactum import errors
from exactum.protocol.sink import TaskName

MARKER = "exactum-task-failed:"
_MARKED = re.compile(re.escape(MARKER) + r" (\{.*\})")
_UNREADABLE = re.compile(
    r"TopicAuthorizationException: Not authorized to access topics: \[([^\]]*)\]"
)
_TOO_FAR = re.compile(r"ArithmeticException: long overflow(?:\n\tat .*)*KafkaRecordToRowConverter")

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
            return TaskFailed._carrying(type(error), f"{error}{also} ({where})")
        what = f"{type(error).__name__}: {error}{also} ({where})"
        if code is not None and isinstance(error, LASTING):
            return TaskFailed._carrying(
                errors.CodeFailed,
                f"{what}. The code of {code} failed at {_place(error)}, and a new start gives it "
                "the same rows. If it is yours, correct it, refuse such rows, or raise "
                "exactum.errors.Unavailable for what may pass; else please report it.",
            )
        return TaskFailed._carrying(errors.EpochAborted, what)

    @staticmethod
    def _carrying(kind: type[errors.ExactumError], message: str) -> TaskFailed:
        return TaskFailed(
            f"{message}\n{MARKER} {json.dumps({'error': kind.__name__, 'message': message})}"
        )


def carried_by(error: BaseException) -> errors.ExactumError | None:
    """The exactum error that ``error``, raised by Spark on the driver, carries; None if it carries
    none.
    """
    text = str(error)
    found = _MARKED.search(text)
    if found is None:
        unreadable = _UNREADABLE.search(text)
        if unreadable is not None:
            return _not_readable(unreadable[1])
        return errors.RowsRefused(NO_TIME) if _TOO_FAR.search(text) else None
    try:
        value = json.loads(found.group(1))
        name, message = str(value["error"]), str(value["message"])
    except (ValueError, KeyError, TypeError):
        return None
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.ExactumError):
        return kind(message)
    return errors.SettingRefused(
        f"{name}: {message} (This driver's exactum has no such error: its executors run another "
        "version. Install the same one everywhere.)"
    )


def _place(error: BaseException) -> str:
    """The innermost line of code that raised it, as ``writer.py:123``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown line"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


NO_TIME = (
    "The Kafka source: Spark cannot hold the timestamp of a record, which should be milliseconds "
    "since 1970. Nothing of its epoch is visible. Find the record with kafka-get-offsets --time "
    "9223372036854775. Where Kafka is read in columns (docs/source.md), exactum.decode() can put "
    "such records aside."
)


def _not_readable(topics: str) -> errors.SettingRefused:
    return errors.SettingRefused(
        f"The Kafka source: the brokers do not let this user read {topics}. The user needs READ on "
        "the topic (docs/source.md lists the ACLs). Nothing of this batch was written."
    )
