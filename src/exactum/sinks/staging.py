"""Where the tasks of a query leave rows until their epoch is decided, in files that executors and
driver share.

    <staging>/<scope>/scope                                            whose it is, for people
    <staging>/<scope>/published-00000000000000000041                   its last visible batch
    <staging>/<scope>/0000000042-0-3-<incarnation>-<random>.0.staged   batch 42, attempt 0, task 3

Rows that are loaded into their target wait in the staging of the query. Files that are moved into
it wait in a hidden folder at the target's own place: a move stays within one storage.

A file has its name once it is whole and durable, and nobody changes it: it is there, or it is not.
``scope`` is a hash of query id and participant name, so that two queries never meet. A file's name
begins with the identity of its task's transaction, also while it is half written: a listing says
whose each file is, and of which batch. Whose file is removed while he writes it fails at its end.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import IO

from exactum.errors import SettingRefused, Unavailable
from exactum.protocol.model import Incarnation, Sighting
from exactum.protocol.sink import Guarantee, QueryRun, Reach, Scope, TaskName, WriteOrder
from exactum.storage.folder import Folder
from exactum.storage.storage import Entry, NewFile, Storage

SUFFIX = ".staged"
"""Readers that look into hidden folders (DuckDB) go by the suffix of their format."""
WHOSE = "scope"
HIDDEN = ".exactum"
"""At a target's own place, the folder of all stagings."""
PUBLISHED = "published-"
PLAIN = "-plain"
"""Ends the identity of what was written under a weaker guarantee: no record ever names it."""
_PUBLISHED = re.compile(rf"{PUBLISHED}(\d{{20}})")
_NAME = re.compile(
    r"(?P<batch>\d{10,19})-(?P<attempt>\d+)-(?P<task>\d+)-(?P<incarnation>[0-9A-Za-z]{1,64})"
    rf"-[0-9a-f]{{16}}(?P<plain>{PLAIN})?"
)


@dataclass(frozen=True)
class StagedName:
    """What the names of one task's files begin with, which is its transaction's identity."""

    identity: str
    batch_id: int
    attempt: int
    task: int
    incarnation: Incarnation
    is_plain: bool

    @staticmethod
    def new(order: WriteOrder, task: TaskName) -> StagedName:
        """One that nobody else ever has."""
        plain = "" if order.run.guarantee is Guarantee.EXACTLY_ONCE else PLAIN
        identity = (
            f"{order.batch_id:010d}-{order.attempt}-{task.partition_id}-{order.run.incarnation}"
            f"-{secrets.token_hex(8)}{plain}"
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
            match["plain"] is not None,
        )

    def file(self, number: int) -> str:
        return f"{self.identity}.{number}{SUFFIX}"


@dataclass(frozen=True)
class Listing:
    """What lay in a staging at one moment."""

    entries: Sequence[Entry]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return {entry.name: entry.size for entry in self.entries}

    def staged(self, behind: int = -1) -> Mapping[StagedName, Sequence[Entry]]:
        """The files, whole or not, of each transaction of a batch behind that one."""
        files = {
            name: [entry for entry in entries if SUFFIX in entry.name]
            for name, entries in self._named.items()
            if name.batch_id > behind
        }
        return {name: own for name, own in files.items() if own}

    def sightings(self, participant: str, behind: int = -1) -> Sequence[Sighting]:
        names = self.staged(behind)
        return [Sighting(participant, name.identity, name.incarnation) for name in names]

    def of_batches_to(self, batch_id: int) -> list[str]:
        """Files and notes of batches up to this one."""
        return [
            entry.name
            for name, entries in self._named.items()
            if name.batch_id <= batch_id
            for entry in entries
        ]

    @cached_property
    def _named(self) -> Mapping[StagedName, Sequence[Entry]]:
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault(_identity(entry.name), []).append(entry)
        named = [(StagedName.parse(text), entries) for text, entries in groups.items()]
        return {name: entries for name, entries in named if name is not None}


@dataclass(frozen=True)
class Staging:
    """The files of one sink of one query. Picklable; driver and tasks have their own copies. Every
    method is idempotent. Those of the driver raise ``Unavailable``: the storage did not answer.

    ``above`` is empty, or the folder in the storage that all stagings lie in, with a slash.
    """

    storage: Storage
    scope: Scope
    above: str = ""

    @property
    def where(self) -> str:
        """Its folder or prefix, for messages; without secrets."""
        return self._files.where

    @property
    def folder(self) -> str:
        """In the storage."""
        return f"{self.above}{self.scope.digest[:32]}"

    @property
    def _files(self) -> Storage:
        return self.storage.below(self.folder)

    @property
    def trace(self) -> Mapping[str, str]:
        """See ``OpenSink``. A place of the target's own is found again where it is a folder."""
        if not self.above:
            return TRACE
        storage = self.storage
        return {"folder": os.path.realpath(storage.root)} if isinstance(storage, Folder) else {}

    def shown(self, name: str) -> str:
        """A file, for messages."""
        return f"{self.where}/{name}"

    # ---- driver ------------------------------------------------------------------------------

    def open(self) -> None:
        """Make it, and prove by doing it that files can be written and read there.

        Raises:
            SettingRefused: they cannot.
        """
        text = {"query_id": self.scope.query_id, "participant": self.scope.participant}
        content = (json.dumps(text, indent=2) + "\n").encode()
        self.storage.open(self.folder)
        self._files.put(WHOSE, content)
        if self._files.read(WHOSE) != content:
            raise SettingRefused(
                "STAGING_PLACE",
                f"The staging {self.where} does not give back what was written to it. Choose "
                "another place. Nothing was written to a target.",
            )

    def listing(self) -> Listing:
        """In the order of the names: of batches, and of tasks within a batch."""
        return Listing(sorted(self._files.entries(), key=attrgetter("name")))

    def published(self) -> int | None:
        """The last batch that was noted as visible; None: none was."""
        return max(_batches(self._files.names()), default=None)

    def note_published(self, batch_id: int, *, durable: bool = True) -> None:
        """A run that was overtaken notes what is below the highest, and changes nothing. Not an
        empty file: whether an empty object is one, a listing has to ask.
        """
        self._files.put(_published(batch_id), b"\n", durable=durable)

    def forget_published(self) -> None:
        """The lowest first: what is left tells the same in between."""
        for batch_id in sorted(_batches(self._files.names())):
            self._files.delete([_published(batch_id)])
        self._files.sync()

    def is_there(self, name: str) -> bool:
        return bool(self._files.existing([name]))

    # What a target notes of one transaction. It goes with the files, and after them.

    def note(self, identity: str, what: str) -> str | None:
        content = self._files.read(f"{identity}.{what}")
        return None if content is None else content.decode()

    def write_note(self, identity: str, what: str, text: str) -> None:
        self._files.put(f"{identity}.{what}", text.encode())

    def write_note_once(self, identity: str, what: str, text: str) -> bool:
        """False: it was there."""
        return self._files.create_if_absent(f"{identity}.{what}", text.encode())

    def open_file(self, name: str) -> IO[bytes]:
        """A file, to be read from its beginning.

        Raises:
            FileNotFoundError: it is not there.
        """
        return self._files.reader(name)

    def remove(self, identities: Collection[str], listing: Listing | None = None) -> None:
        """All of these transactions, as ``listing`` has them, or as they are now. What is gone is
        well.
        """
        if identities:
            names = self._files.names() if listing is None else listing.sizes
            self._delete([name for name in names if _identity(name) in identities])

    def forget(self, listing: Listing, batch_id: int, but: Collection[str]) -> None:
        """Remove what batches up to this one have left, and notes of batches that were visible
        before. The highest one of these stays for now: who lists at this moment sees it.
        """
        old = [name for name in listing.of_batches_to(batch_id) if name not in but]
        noted = sorted(_batches(listing.sizes))
        self._delete([*old, *map(_published, noted[:-1])])

    def _delete(self, names: Sequence[str]) -> None:
        """Files, and then notes."""
        self._files.delete([name for name in names if SUFFIX in name])
        self._files.delete([name for name in names if SUFFIX not in name])

    # ---- task --------------------------------------------------------------------------------

    def create(self, name: str) -> NewFile:
        """A new file, which has its name when the stream is finished.

        Raises:
            SettingRefused: this machine does not see what the driver has made there.
            OSError: the storage failed.
        """
        try:
            return self._files.create(name)
        except FileNotFoundError as error:
            raise SettingRefused(
                "STAGING_NOT_SHARED",
                f"The machine {socket.gethostname()} does not see the staging {self.where} that "
                "the driver has made.\nDriver and executors must share it: mount that folder on "
                "each machine, or give another one (staging=, or the path of a FileSink). If "
                "somebody removed it, start the query again.\nNothing was written to a target.",
            ) from error

    def sync(self) -> None:
        """The names of files that were finished are durable when this returns."""
        self._files.sync()

    def delete(self, names: Sequence[str]) -> None:
        """Raises Unavailable: the storage failed."""
        self._files.delete(names)

    def failure(self, error: OSError) -> Unavailable | SettingRefused:
        """What an OSError of a new file means."""
        return self._files.failure("could not be written", error)


def _identity(name: str) -> str:
    """Of the transaction that a file is of, or a note, or what is half written of one."""
    return name.removeprefix(".").partition(".")[0]


def _published(batch_id: int) -> str:
    return f"{PUBLISHED}{batch_id:020d}"


def _batches(names: Iterable[str]) -> list[int]:
    return [int(match[1]) for match in map(_PUBLISHED.fullmatch, names) if match]


def staging_at(place: Storage, query_id: str, participant: str) -> Staging:
    """Within the place of a target, so that a file is published by one move."""
    return Staging(place, Scope(query_id, participant), f"{HIDDEN}/")


TRACE = {"staging": "of the query"}
"""What a sink leaves open whose rows wait in its query's staging, wherever that has moved."""


def reach_staged(run: QueryRun) -> Reach:
    """What staged sinks of former runs left in this run's staging, or at a place of their own that
    is a folder.
    """

    def reach(participant: str, trace: Mapping[str, str]) -> Leftovers | None:
        if trace == TRACE and run.staging is not None:
            return Leftovers(Staging(run.staging, Scope(run.query_id, participant)))
        folder = trace.get("folder", "")
        if not os.path.isdir(folder):
            return None
        return Leftovers(staging_at(Folder(folder), run.query_id, participant))

    return reach


class Leftovers:
    """What a sink of a former run has left; see ``protocol.participant.Sweepable``."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    @property
    def name(self) -> str:
        return self._staging.scope.participant

    def list_open(self) -> Sequence[Sighting]:
        return self._staging.listing().sightings(self.name)

    def abort(self, transactions: Sequence[Sighting]) -> None:
        self._staging.remove([t.identity for t in transactions])

    def close(self) -> None:
        """Nothing is held open."""
