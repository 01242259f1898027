"""The sources of a running query, each with the options that were given to ``spark.readStream``.

Spark's offset log has one line for each source, in the order of ``StreamExecution.sources``; a
stream that the plan reads twice (a self-union) has two lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exactum.checkpoint.offset_log import ReadText
from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.spark.live import LiveRun, SourceLeaf
from exactum.spark.query import Run

KAFKA = "kafkatable"
"""What Spark calls the table behind ``format("kafka")``."""


@dataclass(frozen=True)
class RunningSource:
    """One line of the offset log.

    ``index`` is the line's place (from 0), ``same_as`` the first index that reads the same stream
    (usually ``index`` itself), ``table`` Spark's name of what is read, in lower case
    (``kafkatable``; empty for the older kind of sources, such as files), ``options`` what was given
    to the reader, in its own spelling (empty likewise), ``metadata`` the source's folder relative
    to the checkpoint (``sources/0``; None likewise).
    """

    index: int
    same_as: int
    table: str
    options: Mapping[str, str]
    metadata: str | None

    @property
    def is_kafka(self) -> bool:
        return self.table == KAFKA

    def option(self, name: str) -> str | None:
        """The option of this name, ignoring case as Spark does; None: not given."""
        lower = name.lower()
        return next((value for key, value in self.options.items() if key.lower() == lower), None)

    def refuses(self, name: str) -> bool:
        """Whether what the option names stops the query, as with ``failOnDataLoss`` that records
        are gone: it is on unless it is false.
        """
        return (self.option(name) or "true").lower() != "false"

    @property
    def initial_file(self) -> str | None:
        """Where Spark keeps the offsets with which the source began, relative to the checkpoint;
        None where Spark does not tell.
        """
        return None if self.metadata is None else f"{self.metadata}/0"

    def initial_offsets(self, read: ReadText) -> Offsets:
        """The offsets with which the source began; empty where they are not on record."""
        name = self.initial_file
        return _noted(read, name) if name is not None and self.is_kafka else {}


def all_initial_offsets(read: ReadText, sources: int) -> list[Offsets]:
    """Those of so many sources, in the order of the offset log's lines, without asking Spark; empty
    for one that is not Kafka's, or that has no folder of its own.
    """
    return [_noted(read, f"sources/{number}/0") for number in range(sources)]


def _noted(read: ReadText, name: str) -> Offsets:
    """What such a file says: it is a zero byte, a line ``v1``, then one line of JSON."""
    text = read(name)
    return {} if text is None else from_json(text.partition("\n")[2])


def sources_of(run: Run) -> tuple[RunningSource, ...]:
    """The sources of a query, in the order of the offset log's lines."""
    return _sources(run.leaves)


def kafka_sources_of(run: Run) -> list[RunningSource]:
    """Kafka's, each stream once."""
    return [s for s in sources_of(run) if s.is_kafka and s.same_as == s.index]


def sources_of_run(live: LiveRun) -> tuple[RunningSource, ...]:
    """As ``sources_of``; empty while Spark has not planned the query yet."""
    return _sources(live.leaves())


def _sources(leaves: Sequence[SourceLeaf]) -> tuple[RunningSource, ...]:
    return tuple(
        RunningSource(index, leaf.same_as, leaf.table, leaf.options, _metadata(leaf.metadata_path))
        for index, leaf in enumerate(leaves)
    )


def _metadata(path: str) -> str | None:
    place = path.rfind("/sources/")
    return path[place + 1 :] if place >= 0 else None
