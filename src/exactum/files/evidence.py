"""What a folder, or a prefix in an object store, holds: of a range of epochs, the files themselves,
read and counted; and the dead letters in it.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Any, cast

from exactum.errors import SettingRefused, Unavailable
from exactum.files.place import is_found_below
from exactum.protocol.inspection import Evidence, Finding, Promise, compared
from exactum.protocol.model import PreparedTransaction
from exactum.sinks.staging import HIDDEN, StagedName, staging_at
from exactum.storage.storage import Storage

BY = "files"
Strays = Mapping[int, Mapping[StagedName, Sequence[str]]]
"""By batch, files that no record names."""
NAME = re.compile(r"part-(?P<identity>.+)-\d+\.(?P<extension>.+)")


class FileEvidence:
    """Of one participant at one place. The place is listed when this is made."""

    def __init__(
        self, participant: str, query_id: str, storage: Storage, options: Mapping[str, Any]
    ) -> None:
        """``options`` are those of the sink's format."""
        self._participant = participant
        self._options = options
        self._storage = storage
        own = staging_at(storage, query_id, participant)
        # What is published meanwhile is in both listings.
        self._staged = {name.identity for name in own.listing().staged()}
        self._by_identity: dict[str, list[str]] = {}
        self._scopes: set[str] = set()
        self._last_batch = own.published()
        for entry in storage.entries():
            self._sort(entry.name)

    def _sort(self, name: str) -> None:
        parts = name.split("/")
        if parts[0] == HIDDEN:
            self._scopes.add(parts[1] if len(parts) > 1 else "")
            return
        match, where = NAME.fullmatch(parts[-1]), self._storage.where
        if match is not None and is_found_below(where, f"{where}/{name}"):
            self._by_identity.setdefault(match["identity"], []).append(name)

    def of(self, promises: Sequence[Promise]) -> list[Evidence]:
        """
        Raises:
            OSError, ValueError: the place did not answer, or a file is damaged.
        """
        strays = self._strays(promises)
        return [self._evidence(promise, strays) for promise in promises]

    def _strays(self, promises: Sequence[Promise]) -> Strays:
        """Of the range, where nobody else writes here."""
        if len(self._scopes - {""}) > 1:
            return {}
        named = {
            p.identity
            for promise in promises
            for p in (*promise.record.of(self._participant), *promise.superseded)
        }
        batches = {promise.batch_id for promise in promises}
        found: dict[int, dict[StagedName, Sequence[str]]] = {}
        for identity, names in self._by_identity.items():
            staged = StagedName.parse(identity)
            if staged is not None and identity not in named and staged.batch_id in batches:
                found.setdefault(staged.batch_id, {})[staged] = names
        return found

    def _evidence(self, promise: Promise, strays: Strays) -> Evidence:
        batch_id, rows, name = promise.batch_id, promise.rows(self._participant), self._participant
        others = strays.get(batch_id, {})
        if others and not promise.record.prepared and all(each.is_plain for each in others):
            text = "it was begun under at_most_once, whose record promises no rows"
            return Evidence(batch_id, name, rows, None, Finding.UNKNOWABLE, BY, text)
        found, why = 0, list[str]()
        waiting = missing = False
        for p in promise.record.of(self._participant):
            count, trouble = self._rows(p)
            found += count
            if trouble and p.identity in self._staged:
                waiting = True
            elif trouble:
                missing = True
                why.append(trouble)
        for stray in chain.from_iterable(others.values()):
            found += self._count(stray)
            why.append(f"no record names {stray}")
        if waiting and not missing and found <= rows:
            text = "decided, and staged: start the query, or finish it"
            return Evidence(batch_id, name, rows, found, Finding.IN_DOUBT, BY, text)
        if missing and found < rows and self._is_marked(batch_id):
            text = f"it was published, and files were taken since: {'; '.join(why)}"
            return Evidence(batch_id, name, rows, None, Finding.UNKNOWABLE, BY, text)
        if missing and found == rows:  # others make up for them
            return Evidence(batch_id, name, rows, found, Finding.DIFFERENT, BY, "; ".join(why))
        return compared(batch_id, name, rows, found, by=BY, why="; ".join(why))

    def _is_marked(self, batch_id: int) -> bool:
        return self._last_batch is not None and self._last_batch >= batch_id

    def _rows(self, p: PreparedTransaction) -> tuple[int, str]:
        """Rows in its files, and what is wrong with them."""
        payload: Mapping[str, Any] = json.loads(p.payload)
        names = sorted(self._by_identity.get(p.identity, ()))
        found = sum(self._count(name) for name in names)
        there = len({name.rpartition("/")[2] for name in names})  # each once: there may be copies
        if there < (count := len(payload["files"])):
            return found, f"{there} of {count} files of {p.identity} are there"
        return found, "" if found == p.rows else f"files of {p.identity} have {found:,} rows"

    def _count(self, name: str) -> int:
        with self._storage.reader(name) as file:
            return count_rows(name, file, self._options)


def count_rows(name: str, file: IO[bytes], options: Mapping[str, Any]) -> int:
    """The rows of one file, by its extension: Parquet's footer, lines of JSON, records of CSV.

    Raises:
        OSError, ValueError: it is damaged, or nothing is known of such files.
    """
    lower = name.lower()
    if lower.endswith(".parquet"):
        import pyarrow.parquet as pq

        return int(pq.ParquetFile(file).metadata.num_rows)
    if lower.endswith(".gz"):
        with gzip.open(file) as unzipped:
            return count_rows(name[: -len(".gz")], cast(IO[bytes], unzipped), options)
    if lower.endswith(".json"):
        return sum(1 for _ in file)
    if lower.endswith(".csv"):
        csv.field_size_limit(2**31 - 1)
        # A line break within quotes is a value's; a row of one null is an empty line.
        with io.TextIOWrapper(file, "utf-8", newline="") as text:
            records = sum(1 for _ in csv.reader(text, delimiter=options.get("delimiter", ",")))
        return max(0, records - bool(options.get("header", True)))
    raise ValueError(f"{name}: files of this kind cannot be counted")


# ---- dead letters ----------------------------------------------------------------------------


def dead_letter_rows(storage: Storage) -> Iterator[Mapping[str, Any]]:
    """
    Raises:
        SettingRefused: a file is of a kind that is not read.
        Unavailable: the place or a file cannot be read.
    """
    for name in sorted(entry.name for entry in storage.entries()):
        folder, _, own = name.rpartition("/")
        if NAME.fullmatch(own) and HIDDEN not in folder.split("/"):
            try:
                with storage.reader(name) as file:
                    yield from _rows_of(name, file)
            except (OSError, EOFError, ValueError) as error:
                where = f"{storage.where}/{name}"
                raise Unavailable(f"The dead letters in {where} cannot be read: {error}") from error


def _rows_of(name: str, file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(file).iter_batches():
            yield from batch.to_pylist()
    elif name.endswith(".gz"):
        with gzip.open(file) as unzipped:
            yield from _rows_of(name.removesuffix(".gz"), cast(IO[bytes], unzipped))
    elif name.endswith(".json"):
        for line in file:
            row = json.loads(line)
            for column in ("key", "value"):
                if row.get(column) is not None:
                    row[column] = base64.b64decode(row[column])
            yield row
    else:
        raise SettingRefused(
            "DEAD_LETTERS_PLACE",
            f"Dead letters in {name} cannot be read from here: give the query a folder of Parquet "
            "or JSON for them.",
        )
