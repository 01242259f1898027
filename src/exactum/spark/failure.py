"""Carries an error from a task to the driver through Spark, which passes on nothing but text.

A task's exception reaches the driver as the text of its traceback, wrapped by Spark two or three times. So
the task raises ``TaskFailed``, whose text holds one marker line of JSON; the driver finds it and raises
exactum's own error class again, with the same message. What Spark's Kafka source is denied in a task has no
marker, and is known by its Java class.
"""

from __future__ import annotations

import json
import re

from exactum import errors
from exactum.protocol.sink import TaskName

MARKER = "exactum-task-failed:"
_MARKED = re.compile(re.escape(MARKER) + r" (\{.*\})")
_UNREADABLE = re.compile(r"TopicAuthorizationException: Not authorized to access topics: \[([^\]]*)\]")


class TaskFailed(Exception):
    """Raised in a task. ``str`` says what happened, where, and ends with the marker line."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    @staticmethod
    def of(error: BaseException, task: TaskName, also: str = "") -> TaskFailed:
        """``error`` of ``task``; ``also`` is added to the message (what went wrong during clean-up)."""
        known = isinstance(error, errors.ExactumError)
        what = str(error) if known else f"{type(error).__name__}: {error}"
        value = {
            "error": type(error).__name__ if known else errors.EpochAborted.__name__,
            "message": f"{what}{also} (in the task of partition {task.partition_id}, attempt {task.attempt_number})",
        }
        return TaskFailed(f"{value['message']}\n{MARKER} {json.dumps(value)}")


def carried_by(error: BaseException) -> errors.ExactumError | None:
    """The exactum error that ``error``, raised by Spark on the driver, carries; None if it carries none."""
    text = str(error)
    found = _MARKED.search(text)
    if found is None:
        unreadable = _UNREADABLE.search(text)
        return None if unreadable is None else _not_readable(unreadable[1])
    try:
        value = json.loads(found.group(1))
        kind = getattr(errors, str(value["error"]), errors.EpochAborted)
        message = str(value["message"])
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(kind, type) and issubclass(kind, errors.ExactumError):
        return kind(message)
    return errors.EpochAborted(message)


def _not_readable(topics: str) -> errors.SettingRefused:
    return errors.SettingRefused(
        f"The Kafka source: the brokers do not let this user read {topics}. The user needs READ on the topic "
        "(docs/source.md lists the ACLs). Nothing of this batch was written."
    )
