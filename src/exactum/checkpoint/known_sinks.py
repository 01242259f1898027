"""The sinks of a query's last run, and former ones: the file that says where its rows went.

    <checkpoint>/exactum/sinks.json

Written by each start of an exactly-once query. It informs operators' commands and the next start,
which by it sees what does not fit together. It holds no secret: no password, no key.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import SINKS
from exactum.durable import make_folder, sync_folder, write_durably
from exactum.protocol.ends import NOTHING_NOTED, Noted

IN_CHECKPOINT = ""
"""What is in the checkpoint's own folder: the decision log, or the staging."""


@dataclass(frozen=True)
class KnownSink:
    """A sink of some run.

    ``name`` is its participant's; ``trace`` finds its transactions (see ``OpenSink.trace``).
    """

    name: str
    trace: Mapping[str, str]

    @property
    def place(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.trace.items() if value)


@dataclass(frozen=True)
class KnownSinks:
    """What is on file. ``decision_log`` says where the query's decisions are, and ``staging`` where
    its rows wait for them, without secrets; ``IN_CHECKPOINT`` for the default. ``noted`` is what is
    known of the decisions.

    ``present`` are the names of the last run's sinks; the others are former ones, the newest
    first.
    """

    query_id: str
    sinks: tuple[KnownSink, ...]
    present: frozenset[str] = frozenset()
    decision_log: str = IN_CHECKPOINT
    noted: Noted = NOTHING_NOTED
    staging: str = IN_CHECKPOINT

    def to_text(self) -> str:
        return json.dumps(
            {
                "query_id": self.query_id,
                "decision_log": self.decision_log,
                "staging": self.staging,
                "noted": asdict(self.noted),
                "sinks": [
                    {
                        "name": sink.name,
                        "present": sink.name in self.present,
                        "trace": dict(sink.trace),
                    }
                    for sink in self.sinks
                ],
            },
            indent=1,
        )


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
        return KnownSinks(
            str(content["query_id"]),
            sinks,
            present,
            str(content["decision_log"]),
            Noted(**content["noted"]),
            str(content["staging"]),
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


def _sink(value: Mapping[str, Any]) -> KnownSink:
    return KnownSink(str(value["name"]), dict(value["trace"]))
