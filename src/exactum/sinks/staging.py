"""Where the tasks of a query leave rows until their epoch is decided: one file for each task and
sink, in a folder or a prefix that executors and driver share.

    <staging>/<scope>/scope                                            whose it is, for people
    <staging>/<scope>/published-00000000000000000041                   its last visible batch
    <staging>/<scope>/0000000042-0-3-<incarnation>-<random>.staged     batch 42, attempt 0, task 3

A file has its name once it is whole and durable, and nobody changes it: it is there, or it is not.
``scope`` is a hash of query id and participant name, so that two queries never meet. The name is
the identity of the task's transaction, so that a listing says whose each file is, and of which
batch.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from exactum.errors import EpochAborted, SettingRefused
from exactum.protocol.model import Incarnation, Sighting
from exactum.protocol.scope import Scope
from exactum.protocol.sink import QueryRun, Reach, TaskName, WriteOrder
from exactum.storage.storage import NewFile, Storage

SUFFIX = ".staged"
WHOSE = "scope"
PUBLISHED = "published-"
_PUBLISHED = re.compile(rf"{PUBLISHED}(\d{{20}})")
_NAME = re.compile(
    r"(?P<batch>\d{10,19})-(?P<attempt>\d+)-(?P<task>\d+)-(?P<incarnation>[0-9A-Za-z]{1,64})"
    r"-[0-9a-f]{16}"
)


@dataclass(frozen=True)
class StagedName:
    """The name of one task's file, which is its transaction's identity as well."""

    identity: str
    batch_id: int
    attempt: int
    task: int
    incarnation: Incarnation

    @staticmethod
    def new(order: WriteOrder, task: TaskName) -> StagedName:
        """One that nobody else ever has."""
        identity = (
            f"{order.batch_id:010d}-{order.attempt}-{task.partition_id}-{order.run.incarnation}"
            f"-{secrets.token_hex(8)}"
        )
        found = StagedName.parse(identity)
        assert found is not None, identity
        return found

    @staticmethod
    def parse(text: str) -> StagedName | None:
        """None where it is nobody's."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        return StagedName(
            text,
            int(match["batch"]),
            int(match["attempt"]),
            int(match["task"]),
            Incarnation(match["incarnation"]),
        )


@dataclass(frozen=True)
class Staging:
    """The files of one sink of one query. Picklable; driver and tasks have their own copies. Every
    method is idempotent.
    """

    storage: Storage
    scope: Scope

    @property
    def where(self) -> str:
        """Its folder or prefix, for messages; without secrets."""
        return self._files.where

    @property
    def _files(self) -> Storage:
        return self.storage.below(self.scope.digest[:32])

    def path(self, identity: str) -> str:
        """Of a file, for messages."""
        return f"{self.where}/{identity}{SUFFIX}"

    # ---- driver ------------------------------------------------------------------------------

    def open(self) -> None:
        """Make it, and prove by doing it that files can be written and read there.

        Raises:
            SettingRefused: they cannot.
            Unavailable: the storage did not answer.
        """
        text = {"query_id": self.scope.query_id, "participant": self.scope.participant}
        content = (json.dumps(text, indent=2) + "\n").encode()
        files = self._files
        files.open()
        files.put(WHOSE, content)
        if files.read(WHOSE) != content:
            raise SettingRefused(
                "STAGING_PLACE",
                f"The staging {self.where} does not give back what was written to it. Choose "
                "another place by staging=. Nothing was written to a target.",
            )

    def sizes(self) -> Mapping[StagedName, int]:
        """Bytes of every file that is there, whoever wrote it.

        Raises:
            Unavailable: the storage did not answer.
        """
        found: dict[StagedName, int] = {}
        for entry in self._files.entries():
            name = StagedName.parse(entry.name.removesuffix(SUFFIX))
            if name is not None:
                found[name] = entry.size
        return found

    def published(self) -> int | None:
        """The last batch that was noted as visible; None: none was.

        Raises:
            Unavailable: the storage did not answer.
        """
        return max(self._notes_of_batches(), default=None)

    def note_published(self, batch_id: int) -> None:
        """Durably. A run that was overtaken notes what is below the highest, and changes nothing.

        Raises:
            Unavailable: the storage did not answer.
        """
        before = self._notes_of_batches()
        self._files.create_if_absent(f"{PUBLISHED}{batch_id:020d}", b"")
        # The highest one of before stays for now: a listing that runs at this moment sees it.
        self._forget_notes([old for old in before if old < max(before)])

    def forget_published(self) -> None:
        """The lowest first: what is left tells the same in between.

        Raises:
            Unavailable: the storage did not answer.
        """
        self._forget_notes(self._notes_of_batches())

    def _notes_of_batches(self) -> list[int]:
        names = map(_PUBLISHED.fullmatch, self._files.names())
        return sorted(int(match[1]) for match in names if match)

    def _forget_notes(self, batches: Sequence[int]) -> None:
        self._files.delete([f"{PUBLISHED}{batch:020d}" for batch in batches])

    @property
    def published_path(self) -> str:
        """For messages: the name goes on with the batch, in 20 digits."""
        return f"{self.where}/{PUBLISHED}"

    def is_there(self, identity: str) -> bool:
        """Raises Unavailable: the storage did not answer."""
        return bool(self._files.existing([self._name(identity)]))

    # What a target notes of one file. It goes with the file.

    def note(self, identity: str, what: str) -> str | None:
        """Raises Unavailable: the storage did not answer."""
        content = self._files.read(f"{identity}.{what}")
        return None if content is None else content.decode()

    def write_note(self, identity: str, what: str, text: str) -> None:
        """Durably. Raises Unavailable: the storage did not answer."""
        self._files.put(f"{identity}.{what}", text.encode())

    def write_note_once(self, identity: str, what: str, text: str) -> bool:
        """False: it was there. Raises Unavailable: the storage did not answer."""
        return self._files.create_if_absent(f"{identity}.{what}", text.encode())

    def open_file(self, identity: str) -> IO[bytes]:
        """A file, to be read from its beginning.

        Raises:
            FileNotFoundError: it is not there.
            Unavailable: the storage did not answer.
        """
        return self._files.reader(self._name(identity))

    def remove(self, identities: Collection[str]) -> None:
        """The files, and then what is noted of them. What is gone is well.

        Raises:
            Unavailable: the storage did not answer.
        """
        if not identities:
            return
        files = self._files
        files.delete([self._name(identity) for identity in identities])
        files.delete([n for n in files.names() if n.partition(".")[0] in identities])

    def forget_up_to(self, batch_id: int) -> None:
        """Remove what batches up to this one have left, notes without a file as well.

        Raises:
            Unavailable: the storage did not answer.
        """
        files = self._files
        each = [(n, StagedName.parse(n.partition(".")[0])) for n in files.names()]
        files.delete([n for n, name in each if name is not None and name.batch_id <= batch_id])

    # ---- task --------------------------------------------------------------------------------

    def create(self, name: StagedName) -> NewFile:
        """A new file, which has its name when the stream is finished.

        Raises:
            SettingRefused: this machine does not see what the driver has made there.
            OSError: the storage failed.
        """
        if self._files.read(WHOSE) is None:
            raise SettingRefused(
                "STAGING_NOT_SHARED",
                f"This machine does not see the staging {self.where} that the driver has made.\n"
                "Rows wait there until their epoch is decided, so driver and executors must share "
                "it: a mounted folder, or an object store.\nGive one by staging=. Nothing was "
                "written to a target.",
            )
        return self._files.create(self._name(name.identity))

    def sync(self) -> None:
        """The names of files that were finished are durable when this returns."""
        self._files.sync()

    def _name(self, identity: str) -> str:
        return f"{identity}{SUFFIX}"


def staging_of(run: QueryRun, scope: Scope, shown: str) -> Staging:
    """The sink's staging in a run, made and tried out.

    Raises:
        SettingRefused: the run has no place for it, or it cannot be used.
        Unavailable: the storage did not answer.
    """
    staging = Staging(wanted(run.staging, shown), scope)
    staging.open()
    return staging


def wanted(storage: Storage | None, shown: str) -> Storage:
    """
    Raises:
        SettingRefused: there is none.
    """
    if storage is None:
        raise SettingRefused(
            "STAGING_WANTED",
            f"{shown}: its rows wait in files until their epoch is decided, and the checkpoint "
            "lies where exactum keeps none.\nGive staging= a folder or a prefix in an object "
            "store that the driver and all executors share (stores need exactum[objects]). Nothing "
            "was written.",
        )
    return storage


TRACE = {"staging": "of the query"}
"""What a staged sink leaves open lies in its query's staging, wherever that has moved."""


def reach_staging(run: QueryRun) -> Reach:
    """What sinks of former runs left in this run's staging."""

    def reach(participant: str, trace: Mapping[str, str]) -> Leftovers | None:
        if run.staging is None or trace != TRACE:
            return None
        return Leftovers(Staging(run.staging, Scope(run.query_id, participant)))

    return reach


class Leftovers:
    """What a sink of a former run has left; see ``protocol.participant.Sweepable``."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    @property
    def name(self) -> str:
        return self._staging.scope.participant

    def list_open(self) -> Sequence[Sighting]:
        return [Sighting(self.name, n.identity, n.incarnation) for n in self._staging.sizes()]

    def abort(self, transactions: Sequence[Sighting]) -> None:
        self._staging.remove([t.identity for t in transactions])

    def close(self) -> None:
        """Nothing is held open."""


def gone(path: str) -> EpochAborted:
    """A staged file is not as its task wrote it, and nothing is decided."""
    return EpochAborted(
        f"The staged file {path} is not there as its task wrote it. A newer run of the query has "
        "removed it, something else removes files from the staging, or driver and executors do not "
        "share it. Nothing was committed; start the query again."
    )
