"""Where a query's dead letters lie: a topic, a table, files. Each is read from its begin."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from exactum.errors import SettingRefused, Unavailable
from exactum.files.sink import FileSink
from exactum.kafka.sink import KafkaSink
from exactum.kafka.topics.committed_records import CommittedRecords, NotReadable
from exactum.ops.dead_letters.dead_letter import HEADER_PREFIX, DeadLetter, named
from exactum.ops.targets.target import Target
from exactum.ops.verify.file_evidence import NAME
from exactum.protocol.sink import DEAD_LETTER_COLUMNS
from exactum.sql.dialect import Role, Session, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.sink import SqlSink

GROUP = "exactum-dead-letters"
"""The group whose name stands in the brokers' logs; it has no offsets."""


def dead_letters_of(target: Target) -> Iterator[DeadLetter]:
    """All letters, one after another; those that readers see.

    Raises:
        SettingRefused: nothing is known of how to read such a target.
        Unavailable: it did not answer.
    """
    sink = target.sink
    if isinstance(sink, KafkaSink) and sink.topic is not None:
        return _in_topic(sink, sink.topic)
    if isinstance(sink, SqlSink):
        return named(_in_table(sink))
    if isinstance(sink, FileSink):
        return named(_in_files(sink))
    raise SettingRefused(
        "DEAD_LETTERS_PLACE",
        f"The dead letters go to {sink!r}: no command reads them there.",
    )


# ---- Kafka -----------------------------------------------------------------------------------


def _in_topic(sink: KafkaSink, topic: str) -> Iterator[DeadLetter]:
    records = CommittedRecords(sink.client_settings, GROUP, repr(sink))
    try:
        for partition in records.partitions(topic):
            for message in records.read(partition):
                yield _of_message(message)
    except NotReadable as error:
        raise Unavailable(f"The topic {topic!r} cannot be read: {error}.") from error
    finally:
        records.close()


def _of_message(message: Any) -> DeadLetter:
    fields = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in message.headers() or ()
        if name.startswith(HEADER_PREFIX)
    }
    return DeadLetter(
        f"{message.topic()}-{message.partition()}@{message.offset()}",
        message.key(),
        message.value(),
        fields.get("sink", ""),
        fields.get("error", ""),
        fields.get("source_topic"),
        _number(fields.get("source_partition")),
        _number(fields.get("source_offset")),
        fields.get("source_timestamp"),
        fields.get("row_json"),
        message.timestamp()[1],
    )


# ---- databases -------------------------------------------------------------------------------


def _in_table(sink: SqlSink) -> Iterator[DeadLetter]:
    where = f"the dead letters at {sink.address.where}"
    try:
        session = sink.dialect.connect(sink.address, Role.DRIVER, "exactum dead letters", 10.0)
        try:
            yield from _rows(sink, session)
        finally:
            session.close()
    except SqlFailure as failure:
        raise port_error(failure, where) from failure


def _rows(sink: SqlSink, session: Session) -> Iterator[DeadLetter]:
    table = sink.dialect.read_table(session, sink.target)
    if table is None:
        raise SettingRefused(
            "DEAD_LETTERS_UNKNOWN", f"There is no table {sink.target} at {sink.address.where}."
        )
    there = {column.name.lower(): column.name for column in table.columns}
    names = [name for name, _ in DEAD_LETTER_COLUMNS if name in there]
    columns = ", ".join(sink.quoted(there[name]) for name in names)
    for row in session.query(f"SELECT {columns} FROM {sink.quoted(table.name)}"):
        yield _of_columns(dict(zip(names, row, strict=True)))
    session.rollback()


# ---- files -----------------------------------------------------------------------------------


def _in_files(sink: FileSink) -> Iterator[DeadLetter]:
    path, _ = sink.location
    if "://" in path:
        raise SettingRefused(
            "DEAD_LETTERS_PLACE",
            "Dead letters in an object store cannot be read from here: copy them to a folder.",
        )
    for file in sorted(_below(path)):
        if file.is_file() and NAME.fullmatch(file.name) and ".exactum" not in file.parts:
            try:
                with file.open("rb") as opened:
                    for row in _rows_of(file.name, opened):
                        yield _of_columns(row)
            except (OSError, EOFError, ValueError) as error:
                raise Unavailable(f"The dead letters in {file} cannot be read: {error}") from error


def _below(path: str) -> Iterator[Path]:
    """The files in a folder and below; none where there is no folder.

    Raises:
        Unavailable: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise Unavailable(
                f"The dead letters in {error.filename} cannot be read: {error}"
            ) from error

    for folder, _, names in os.walk(path, onerror=refuse):
        yield from (Path(folder, name) for name in names)


def _rows_of(name: str, file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(file).iter_batches():
            yield from batch.to_pylist()
        return
    if not name.endswith((".json", ".json.gz")):
        raise SettingRefused(
            "DEAD_LETTERS_PLACE",
            f"Dead letters in {name} cannot be read from here: give the query a folder of Parquet "
            "or JSON for them.",
        )
    if name.endswith(".gz"):
        import gzip

        with gzip.open(file) as unzipped:
            yield from _json_rows(unzipped)
        return
    yield from _json_rows(file)


def _json_rows(file: Any) -> Iterator[Mapping[str, Any]]:
    for line in file:
        row = json.loads(line)
        for name in ("key", "value"):
            if row.get(name) is not None:
                row[name] = base64.b64decode(row[name])
        yield row


def _of_columns(row: Mapping[str, Any]) -> DeadLetter:
    return DeadLetter(
        "",
        _bytes(row.get("key")),
        _bytes(row.get("value")),
        str(row.get("sink") or ""),
        str(row.get("error") or ""),
        row.get("source_topic"),
        _number(row.get("source_partition")),
        _number(row.get("source_offset")),
        _timestamp(row.get("source_timestamp")),
        row.get("row_json"),
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _timestamp(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else value
