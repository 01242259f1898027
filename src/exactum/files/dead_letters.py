"""Dead letters in files of a folder or of an object store."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast

from exactum.errors import SettingRefused, Unavailable
from exactum.files.evidence import NAME
from exactum.files.place import HIDDEN
from exactum.storage.storage import Storage


def rows_in(storage: Storage) -> Iterator[Mapping[str, Any]]:
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
