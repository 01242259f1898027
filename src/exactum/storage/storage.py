"""Files under names, in a folder or in an object store: the port through which exactum keeps what
has to survive a crash.

A name is a path with slashes below the storage's root. A file is whole from the moment it has its
name. A storage is picklable and has no state; any number of processes use one place at a time.

Every method is idempotent. They raise ``Unavailable`` (it did not answer) and ``SettingRefused``
(no other start mends it); the methods of a task's large files raise plain OSError, as pyarrow does,
and ``failure`` says what that means.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

from exactum.errors import SettingRefused, Unavailable

UNFINISHED = ".tmp"
"""Suffix of a file that has not got its name yet: ``.<name>.<random>.tmp``, beside it."""


@dataclass(frozen=True)
class Entry:
    """A file. ``name`` is below what was listed; ``modified_ms`` since 1970 by the place's
    clock.
    """

    name: str
    size: int
    modified_ms: int


class NewFile(io.RawIOBase):
    """A large file on its way, which pyarrow or anybody else writes into. Used by one thread until
    ``finish``. Raises OSError.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def append(self, data: memoryview) -> None:
        """Of a kind of storage; into a file that was discarded goes nothing."""
        raise NotImplementedError

    def finish(self) -> int:
        """Make it durable under its name and return its bytes; the name is durable after ``sync``.
        Called once, from any thread.

        Raises:
            FileNotFoundError: it was removed meanwhile, or what it lies in.
        """
        raise NotImplementedError

    def discard(self) -> None:
        """Let go of it unfinished. Idempotent."""
        raise NotImplementedError

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.append(view)
        self._bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._bytes


class SmallFiles(Protocol):
    """What a log needs."""

    @property
    def where(self) -> str:
        """The path or URL, for messages; never with a password."""

    def open(self, *folders: str) -> None:
        """Make the place and these folders in it, try that what this port promises holds here, and
        remove unfinished files that writers which died left in them over an hour ago.
        """

    def names(self, prefix: str = "") -> list[str]:
        """Every name directly below ``prefix``, of files and of folders, that is there all through
        the call. Empty where there is none.
        """

    def read(self, name: str) -> bytes | None:
        """The whole content; None: there is no such file."""

    def create_if_absent(self, name: str, content: bytes) -> bool:
        """Give ``name`` this content unless it is taken: whether this content has it now. Of many
        who try, each with content of its own, one gets True. What has the name is durable.

        Raises:
            OutcomeUnknown: it may have been created, or not.
        """

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Put ``content`` under ``name``, in the place of what is there. If it is not ``durable``,
        a power cut may undo that, and a crash of the process may not.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Remove files, in no order."""

    def sync(self, prefix: str = "") -> None:
        """Which names are directly below ``prefix`` is durable when this returns."""

    def close(self) -> None:
        """Let go of connections; who asks again connects again."""


class Storage(SmallFiles, Protocol):
    """Adds large files, and moves from one name to another."""

    @property
    def streams_max(self) -> int:
        """How many new files one task may have open at a time."""

    @property
    def may_be_unmounted(self) -> bool:
        """Whether an empty place of the same name shows where this one is not there."""

    def below(self, prefix: str) -> Storage:
        """The storage whose root is ``prefix``."""

    def remove(self) -> None:
        """Remove everything below the root, and the root. What others write meanwhile may stay."""

    def entries(self, prefix: str = "") -> list[Entry]:
        """Every file below ``prefix``, however deep. What is still being written may be among
        them, as ``UNFINISHED`` says.
        """

    def entry(self, name: str) -> Entry | None:
        """This file; None: there is none."""

    def existing(self, names: Sequence[str]) -> set[str]:
        """Which of these files are there."""

    def reader(self, name: str) -> IO[bytes]:
        """A large file, to read and to seek in.

        Raises:
            FileNotFoundError: there is none.
        """

    def create(self, name: str) -> NewFile:
        """Begin a new file. Raises OSError.

        Raises:
            FileNotFoundError: the folder that it would lie in is not there, so this machine does
                not see the place.
        """

    def make_way(self, targets: Collection[str]) -> None:
        """Make what files are moved into, and see that a move to each of these names can be done:
        past a decision it is too late to refuse one.
        """

    def move_if_absent(self, moves: Sequence[tuple[str, str]]) -> list[bool]:
        """Bring files from the first name to the second, durably. False: it has neither name.

        A target that is there while the source is gone was moved before: True. A file that is there
        is not replaced; but a target's name must be its mover's own, for not every storage can look
        and move in one step.

        Raises:
            HeuristicOutcome: the target is there with other content.
        """

    def failure(self, trouble: str, error: OSError) -> Unavailable | SettingRefused:
        """What an OSError of a large file means."""
