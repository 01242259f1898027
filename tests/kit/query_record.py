"""What a query has left on file (``checkpoint.query_record``), as tests read and change it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from exactum.checkpoint.layout import QUERY
from exactum.checkpoint.query_record import QueryRecord, record_of
from exactum.storage.folder import Folder


def newest(checkpoint: Path) -> Path:
    """The file that counts."""
    return max((checkpoint / QUERY).glob("*.json"), key=lambda path: int(path.stem))


def on_file(checkpoint: Path) -> QueryRecord:
    return msgspec.json.decode(newest(checkpoint).read_bytes(), type=QueryRecord)


def note(checkpoint: Path, query_id: str, **said: Any) -> None:
    """``said`` are fields of ``QueryRecord``."""
    record_of(Folder(checkpoint), query_id).change(lambda record: replace(record, **said))


def damage(checkpoint: Path, text: str = "{") -> None:
    """All of it; there is one file at least."""
    (checkpoint / QUERY).mkdir(parents=True, exist_ok=True)
    for path in [*(checkpoint / QUERY).glob("*.json")] or [checkpoint / QUERY / "0.json"]:
        path.write_text(text)
