"""Every error exactum raises. An error is an instruction: its class says what may be done next.

    ExactumError
    ├── Refused                 HALT    found at start, before anything was written; change it
    │   ├── SettingRefused              a setting that cannot hold the guarantee
    │   ├── CheckpointRefused           a checkpoint or decision log that does not fit this query
    │   └── FrameRefused                columns missing or of the wrong type
    ├── RowsRefused             HALT    rows that a target can never take, or nobody can decode
    ├── CodeFailed              HALT    code of a sink failed on a task's rows, as it will again
    ├── Unavailable             RETRY   a server did not answer; nothing is known to have changed
    ├── OutcomeUnknown          RETRY   a request may have taken effect, or not; never a success
    ├── EpochAborted            ABORT   the attempt is void and aborted; run the batch again
    │   └── UnknownFailure              likewise; if it comes again, it is the rows or the code
    ├── Fenced                  FENCED  a newer incarnation has taken over; this one must stop
    ├── HeuristicOutcome        HALT    a decided epoch was undone outside; an operator must look
    ├── InvariantBroken         HALT    the protocol met a state it excludes; please report it
    └── LocalServerError        HALT    a server of ``exactum.local`` could not be set up or started

The disposition is on the class, so that a supervisor need not read messages. A refusal has a code
as well, as Spark's errors have a condition: ``docs/errors.md`` explains each. Every error pickles
(Spark carries errors between processes): its arguments are a code, if it has one, and a message.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class Disposition(Enum):
    """What the one who catches the error may do."""

    RETRY = "retry"  # the same call may be made again
    ABORT = "abort"  # start the query again: the batch is run anew
    FENCED = "fenced"  # do not start again: somebody newer runs the query
    HALT = "halt"  # do not start again before a person has changed something


HALTING = (Disposition.FENCED, Disposition.HALT)
"""Nobody starts the query again by itself."""


class ExactumError(Exception):
    """Base of all errors of exactum. The message says what is wrong, where, and what to do."""

    disposition: ClassVar[Disposition] = Disposition.HALT

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def with_message(self, message: str) -> ExactumError:
        """The same error, of the same code if it has one, with another message."""
        same = type(self).__new__(type(self))  # a class of a user's may be made of other things
        same.__dict__.update(self.__dict__)
        same.args = (*self.args[:-1], message)
        return same

    def followed_by(self, text: str) -> ExactumError:
        """The same error with ``text`` behind its message."""
        return self.with_message(f"{self.args[-1]}{text}")


USER_CODE = "USER_CODE"
"""The code of errors that code outside of exactum raises."""


class CodedError(ExactumError):
    """An error that ``docs/errors.md`` explains by its code.

    Args:
        code: For example ``SQL_TABLE_MISSING``; stands before the message, in brackets. Code
            outside of exactum, such as a sink of yours, gives the message alone.
        message: What is wrong, where, and what to do.
    """

    def __init__(self, code: str, message: str | None = None) -> None:
        Exception.__init__(self, *((USER_CODE, code) if message is None else (code, message)))

    @property
    def code(self) -> str:
        """Under which ``docs/errors.md`` explains this error."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"[{self.code}] {self.args[1]}"


class Refused(CodedError):
    """The query may not run like this. Nothing was written."""


class SettingRefused(Refused):
    """A sink, a producer setting or a trigger with which the guarantee cannot hold."""


class CheckpointRefused(Refused):
    """A checkpoint or a decision log that does not fit this query or this version."""


class FrameRefused(Refused):
    """The frame lacks a column that the sink needs, or has it with a type that it cannot write."""


class RowsRefused(CodedError):
    """A row that a target can never take, or nobody can decode, and no dead letters for it. Its
    epoch is aborted.
    """


class CodeFailed(CodedError):
    """Code of a sink, ours or the user's, failed on a task's rows, as it will on the same rows
    again.
    """


class Unavailable(ExactumError):
    """A server could not be reached or did not answer in time; nothing is known to have changed."""

    disposition = Disposition.RETRY


class OutcomeUnknown(ExactumError):
    """A request may or may not have taken effect. It is settled by asking, never by guessing."""

    disposition = Disposition.RETRY


class EpochAborted(ExactumError):
    """The attempt is void: it was not decided and nothing of it is or becomes visible."""

    disposition = Disposition.ABORT


class UnknownFailure(EpochAborted):
    """A task, or a function of the query, failed with an error of another library, whose name tells
    of no connection, disk or memory. ``exactum run`` gives up when it has ended three lives at the
    same batch.
    """


class Fenced(ExactumError):
    """A newer incarnation runs this query. This one has aborted what it prepared and must stop."""

    disposition = Disposition.FENCED


class HeuristicOutcome(CodedError):
    """A decided epoch was undone by a timeout or by an operator, and cannot be made whole alone."""


class InvariantBroken(ExactumError):
    """The protocol met a state that it excludes: a defect in exactum or a damaged decision log."""


class LocalServerError(ExactumError):
    """A server of ``exactum.local`` could not be fetched, set up or started."""
