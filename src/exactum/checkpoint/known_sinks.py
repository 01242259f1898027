"""The sinks of a query's last run, and former ones: the file that says where its rows went.

    <checkpoint>/exactum/sinks.json

Written by each start of an exactly-once query. It informs operators' commands and the next start,
which by it sees more of what does not fit together. It holds no secret: no password, no key.

Which batch was decided last is noted with each batch, in place: a process that dies leaves it, a
power cut may leave an older one, and an fsync for each batch is not worth more.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from exactum.checkpoint.layout import SINKS
from exactum.durable import make_folder, sync_folder, sync_open, write_durably

Columns = tuple[tuple[str, str], ...]
"""(name, Spark's simple type string) of what a sink writes."""
DECIDED = '"decided": '
_NOTE = re.compile(rb'"decided": \d+ *,')
DIGITS_MAX = 19
"""Of a batch's number, which Spark keeps in 64 bits. A shorter one is filled up with blanks, so
that a later one fits in its place.
"""
IN_CHECKPOINT = ""
"""The decision log in the checkpoint's own folder."""


@dataclass(frozen=True)
class KnownSink:
    """A sink of some run.

    ``name`` is its participant's; ``trace`` finds its transactions (see ``OpenSink.trace``).
    ``where`` says to an operator, and to his commands, what the sink is and how to get there:
    ``kind`` (kafka, postgres, mysql, files, custom, write-ahead) and what that kind needs.
    ``columns`` are those it was given. ``is_settled``: nothing of it is open; it is on file for the
    dead letters that it holds.
    """

    name: str
    trace: Mapping[str, str]
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    columns: Columns = field(default=(), compare=False)
    is_settled: bool = field(default=False, compare=False)

    @property
    def place(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.trace.items() if value)


@dataclass(frozen=True)
class KnownSinks:
    """What is on file. ``decision_log`` says where the query's decisions are, without secrets;
    ``IN_CHECKPOINT`` for the default, None where an older exactum wrote the file.

    ``decided`` is a batch whose COMMIT stands there, the last one as far as is known; None where
    that is not known. ``since`` is there in its stead until a run has noted its first batch: the
    one that it began to write, which may be decided there.

    ``present`` are the names of the last run's sinks; the others are former ones, the newest
    first.
    """

    query_id: str
    sinks: tuple[KnownSink, ...]
    present: frozenset[str] = frozenset()
    decision_log: str | None = None
    decided: int | None = None
    since: int | None = None

    def to_text(self) -> str:
        text = json.dumps(
            {
                "query_id": self.query_id,
                "decision_log": self.decision_log,
                **({} if self.decided is None else {"decided": self.decided}),
                **({} if self.since is None else {"since": self.since}),
                "sinks": [
                    {
                        "name": sink.name,
                        "present": sink.name in self.present,
                        "trace": dict(sink.trace),
                        "where": dict(sink.where),
                        "columns": [list(column) for column in sink.columns],
                        "settled": sink.is_settled,
                    }
                    for sink in self.sinks
                ],
            },
            indent=1,
        )
        return text.replace(f"{DECIDED}{self.decided},", f"{DECIDED}{_filled(self.decided)},", 1)


def read_known_sinks(checkpoint: Path) -> KnownSinks | None:
    """What the checkpoint has on file; None where it has nothing.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """
    try:
        content = json.loads((checkpoint / SINKS).read_bytes())
    except FileNotFoundError:
        return None
    try:
        sinks = tuple(_sink(value) for value in content["sinks"])
        present = frozenset(
            str(value["name"]) for value in content["sinks"] if value.get("present", True)
        )
        decided, since = content.get("decided"), content.get("since")
        return KnownSinks(
            str(content["query_id"]),
            sinks,
            present,
            content.get("decision_log"),
            None if decided is None else int(decided),
            None if since is None else int(since),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def write_known_sinks(checkpoint: Path, known: KnownSinks) -> None:
    """Replace the file, durably and whole.

    Raises:
        OSError: it could not be written; the old one stays.
    """
    path = checkpoint / SINKS
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        make_folder(path.parent)
        write_durably(temporary, known.to_text().encode())
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class DecidedNote:
    """Keeps ``decided`` of the file up to date, once ``write_known_sinks`` has written one. The
    file of a run that came later is another file, which this one does not touch.
    """

    def __init__(self, checkpoint: Path) -> None:
        """
        Raises:
            OSError: the file cannot be opened.
            ValueError: it has no such number.
        """
        self._file: IO[bytes] = (checkpoint / SINKS).open("r+b", buffering=0)
        try:
            self._at = self._file.read().index(DECIDED.encode())
        except BaseException:
            self._file.close()
            raise

    def put(self, batch_id: int) -> None:
        """
        Raises:
            OSError: it could not be written; the old number stays.
            ValueError: somebody has edited the file.
        """
        text = f"{DECIDED}{_filled(batch_id)},".encode()
        there = os.pread(self._file.fileno(), len(text), self._at)
        if not _NOTE.fullmatch(there):
            raise ValueError("it was edited while the query runs")
        os.pwrite(self._file.fileno(), text, self._at)

    def close(self) -> None:
        """Make it durable. Idempotent.

        Raises:
            OSError: it could not be.
        """
        if not self._file.closed:
            with self._file:
                sync_open(self._file.fileno())


def _filled(batch_id: int | None) -> str:
    return f"{batch_id!s:<{DIGITS_MAX}}"


def _sink(value: Mapping[str, Any]) -> KnownSink:
    return KnownSink(
        str(value["name"]),
        dict(value["trace"]),
        dict(value.get("where") or {}),
        tuple((str(name), str(kind)) for name, kind in value.get("columns") or ()),
        bool(value.get("settled", False)),
    )
