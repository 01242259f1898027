"""What Spark's own logs in a checkpoint say: which micro-batches it has begun (``offsets/``) and
done (``commits/``), and what each reads. A pure reader: it changes nothing.

The file ``<checkpoint>/offsets/<batch id>`` is text: ``v1``, a line of metadata in JSON, then one
line of JSON for each source, ``-`` for a source that has no offset yet. Kafka's offsets are
``{"orders":{"0":123,"1":7}}``. Reading it in a folder takes 0.02 to 0.15 ms; asking the JVM's own
offset log for the same takes 0.5 to 6 ms and rests on internal classes of Spark.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from exactum.errors import CheckpointRefused
from exactum.kafka.transaction import Partition
from exactum.protocol.model import SourceOffsets

_COUNTER = re.compile(r'\{"logOffset":(\d+)\}')
READABLE_VERSIONS = ("v1", "v2")
NO_OFFSET = "-"
OFFSETS = "offsets"
COMMITS = "commits"
SOURCES = "sources"
"""Spark's folders below a checkpoint."""

ReadText = Callable[[str], "str | None"]
"""From a path relative to the checkpoint to the file's text; None where there is no such file."""

Offsets = dict[Partition, int]
"""The next offset to read of each partition."""


def local_folder(checkpoint: str) -> Path | None:
    """The folder that a checkpoint's URI names on a local or shared file system; None for other
    schemes.

    ``file:/data/x``, ``file:///data/x`` and ``/data/x`` are the same folder. Hadoop prints paths
    without escaping, so ``%``, ``?`` and blanks stand for themselves.
    """
    scheme, colon, rest = checkpoint.partition(":")
    if not colon or "/" in scheme:
        return Path(checkpoint)
    if scheme == "file" and (not rest.startswith("//") or rest.startswith("///")):
        return Path("/" + rest.lstrip("/"))
    return None


def batches(names: Callable[[str], list[str]], log: str) -> list[int]:
    """All that a log of Spark's has, which removes old ones; ``names`` lists a folder.

    Raises:
        Unavailable, SettingRefused: it could not be listed.
    """
    return [int(name) for name in names(log) if name.isdigit()]


def highest_batch(names: Callable[[str], list[str]], log: str) -> int | None:
    """The highest of ``batches``; None: there is none. Raises likewise."""
    return max(batches(names, log), default=None)


def reader(read: Callable[[str], bytes | None], where: str) -> ReadText:
    """Reads texts in a checkpoint by ``read`` of its files, and raises as that does, and
    ``CheckpointRefused`` for bytes that are no text. ``where`` names the checkpoint in errors.
    """

    def text(relative: str) -> str | None:
        content = read(relative)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError as error:
            raise CheckpointRefused(
                "CHECKPOINT_DAMAGED",
                f"{where}/{relative} is damaged: it is no text ({error}). Restore the checkpoint "
                "from a backup or a savepoint. Nothing was written.",
            ) from error

    return text


def source_offsets(
    read: ReadText, batch_id: int, where: str, before: SourceOffsets | None = None
) -> SourceOffsets:
    """The offsets that batch ``batch_id`` reads: from the end of the batch before it to its own
    end. ``before``: those of that batch, where they are known; default: they are read as well.

    ``where`` names the checkpoint in errors. ``start`` is empty for batch 0, and where Spark has
    already forgotten the batch before.

    Raises:
        CheckpointRefused: the batch is not in the offset log, or the log is not one we can read.
    """
    name = f"offsets/{batch_id}"
    text = read(name)
    if text is None:
        raise CheckpointRefused(
            "CHECKPOINT_DAMAGED",
            f"The checkpoint {where} has no {name}, although Spark is running this batch. Somebody "
            "removed or replaced files of the checkpoint while the query runs. Stop the query, "
            "restore the folder, and start again. Nothing of this batch was written.",
        )
    end = parse(text, f"{where}/{name}")
    files = tuple(_files(read, source, offset) for source, offset in enumerate(end))
    files = files if any(files) else ()
    if before is not None:
        return SourceOffsets(before.end, end, files)
    last = read(f"offsets/{batch_id - 1}") if batch_id > 0 else None
    start = () if last is None else parse(last, f"{where}/offsets/{batch_id - 1}")
    return SourceOffsets(start, end, files)


def _files(read: ReadText, source: int, offset: str | None) -> str | None:
    """Of a source of files a digest of those that its batch reads. Its offset is a counter, and is
    the same where Spark has planned other files for it (FileStreamSourceLog.scala).
    """
    counter = _COUNTER.fullmatch(offset or "")
    if counter is None:
        return None
    name = f"{SOURCES}/{source}/{counter[1]}"
    text = read(name) or read(f"{name}.compact") or ""
    entries = [json.loads(line) for line in text.splitlines()[1:]]
    paths = sorted(one["path"] for one in entries if one["batchId"] == int(counter[1]))
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16] if paths else None


def parse(text: str, where: str) -> tuple[str | None, ...]:
    """The sources' offsets in one file of the offset log, in order, each as JSON text with sorted
    keys.

    Raises:
        CheckpointRefused: the text is of an unknown version, or cut off.
    """
    lines = text.splitlines()
    if len(lines) < 3 or lines[0].strip() not in READABLE_VERSIONS:
        raise CheckpointRefused(
            "CHECKPOINT_DAMAGED",
            f"{where} is not an offset log that this exactum can read: it begins with "
            f"{lines[0][:40] if lines else ''!r} and has {len(lines)} lines. Either the file is "
            "damaged (restore the checkpoint from a backup) or this Spark is newer than this "
            "exactum (update it). Nothing was written.",
        )
    return tuple(canonical(line) for line in lines[2:] if line)


def canonical(line: str) -> str | None:
    """The same JSON value always as the same text; what is not JSON (a source may write any) as it
    is.
    """
    if line == NO_OFFSET:
        return None
    try:
        return json.dumps(
            json.loads(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
    except ValueError:
        return line


# ---- offsets by partition ------------------------------------------------------------------------


def to_json(offsets: Mapping[Partition, int]) -> str:
    """Spark's form, with sorted keys."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(index)] = offset
    return json.dumps(topics, separators=(",", ":"))


def from_json(text: str | None) -> Offsets:
    """The offsets in Spark's form; empty where there is no text, or where it is another
    source's.
    """
    if text is None:
        return {}
    try:
        topics = json.loads(text)
        return {
            (topic, int(index)): int(offset)
            for topic, cells in topics.items()
            for index, offset in cells.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def name_of(partition: Partition) -> str:
    """``orders-0``, as Kafka's tools write it."""
    return f"{partition[0]}-{partition[1]}"


def as_argument(offsets: Mapping[Partition, int]) -> str:
    """As a user writes it in Python: ``{'orders': {0: 123, 1: 7}}``."""
    topics: dict[str, dict[int, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[index] = offset
    return repr(topics)
