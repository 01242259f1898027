"""A query's dead letters, what of them was sent again, and the sending of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from exactum.errors import SettingRefused
from exactum.ops.dead_letters.replay import (
    Originals,
    Record,
    Replay,
    Replayed,
    Replays,
    replays,
    sink_of,
)
from exactum.ops.targets.options import QueryOptions
from exactum.ops.targets.properties_file import SERVERS, client_settings_of
from exactum.ops.targets.sinks import Target
from exactum.protocol.dead_letter import DeadLetter, DeadLetterStore
from exactum.protocol.sink import DEAD_LETTERS


@dataclass(frozen=True)
class Choice:
    """Which letters are meant; None: all. ``error`` is a part of the reason's text."""

    identities: frozenset[str] | None = None
    sink: str | None = None
    error: str | None = None

    def takes(self, dead_letter: DeadLetter) -> bool:
        return (
            (self.identities is None or dead_letter.identity in self.identities)
            and (self.sink is None or dead_letter.sink == self.sink)
            and (self.error is None or self.error.lower() in dead_letter.error.lower())
        )


class QueryDeadLetters:
    """Of one query; where it puts nothing aside any more, those of the last runs that did.

    Raises:
        SettingRefused: the query has no sink for dead letters, and none is known that it had.
        CheckpointRefused: its checkpoint is retired: what was sent again is known at its new place.
    """

    def __init__(self, options: QueryOptions) -> None:
        self.place = options.place()
        self.targets = options.targets(self.place)
        target = self.targets.named(DEAD_LETTERS)
        if target is None and DEAD_LETTERS in self.targets.left_out:
            raise SettingRefused(
                "SINKS_NOT_GIVEN",
                f"--sinks does not give the query's sink for dead letters. {self.targets.how}\n"
                "NAME may be what exactly_once(..., dead_letters=...) returned, or a mapping: "
                f"{{{DEAD_LETTERS!r}: FileSink(...)}}.",
            )
        if target is None:
            raise SettingRefused(
                "DEAD_LETTERS_UNKNOWN",
                f"{self.place} has no sink for dead letters. Give it one: "
                "exactum.exactly_once(..., dead_letters=...).\n"
                "Those of former runs: give --sinks a mapping, "
                f"{{{DEAD_LETTERS!r}: FileSink(...)}}.",
            )
        self.target: Target = target

    @property
    def note(self) -> str:
        """A sentence where the query puts nothing aside any more; else empty."""
        if self.target.present:
            return ""
        return (
            f"The last run had no dead_letters=: these are of former runs, in {self.target.sink!r}."
        )

    @cached_property
    def replays(self) -> Replays:
        """What was sent again, as the records say."""
        return replays(self.place.files, self.place.query_id)

    def each(self) -> Iterator[DeadLetter]:
        """All of them, oldest first in each partition.

        Raises:
            SettingRefused: nothing is known of how to read such a target.
            ExactumError: as ``DeadLetterStore.dead_letters``.
        """
        sink = self.target.sink
        if not isinstance(sink, DeadLetterStore):
            raise SettingRefused(
                "DEAD_LETTERS_PLACE",
                f"The dead letters go to {sink!r}: no command reads them there.",
            )
        return sink.dead_letters()

    def chosen(self, choice: Choice) -> Iterator[DeadLetter]:
        """Raises as ``each``."""
        return filter(choice.takes, self.each())

    def waiting(self, choice: Choice) -> Iterator[DeadLetter]:
        """What of them was not sent before. Raises as ``each``."""
        known = {**self.replays.sent, **self.replays.unfinished}
        return (each for each in self.chosen(choice) if each.sent_to(known) is None)

    def refuse_unknown(self, identities: Iterable[str]) -> None:
        """
        Raises:
            SettingRefused: a letter was named, and there is none of this name.
        """
        if unknown := set(identities) - {each.identity for each in self.each()}:
            raise SettingRefused(
                "NOTHING_OF_THAT_NAME",
                f"There is no dead letter {min(unknown)!r}. 'exactum dead-letters list --each' "
                "names them. Nothing was sent.",
            )

    def cluster(self, config: Path | None) -> dict[str, str]:
        """librdkafka's settings of the cluster that a replay goes to: by a Kafka client's file, or
        that of a Kafka sink of the query.

        Raises:
            SettingRefused: nothing says where its brokers are.
        """
        if config is not None:
            settings = client_settings_of(config)
            if SERVERS in settings:
                return settings
            raise SettingRefused(
                "DEAD_LETTERS_UNKNOWN", f"--replay-config {config} does not say {SERVERS}."
            )
        for target in self.targets.each:
            if target.client_settings is not None:
                return dict(target.client_settings)
        raise SettingRefused(
            "DEAD_LETTERS_UNKNOWN",
            "No sink of the query is Kafka, so it is not known where its brokers are: give "
            f"--replay-config FILE, a Kafka client's .properties with {SERVERS}.",
        )

    def replay(
        self,
        choice: Choice,
        topic: str | None,
        settings: Mapping[str, str],
        on_sent: Callable[[int], None],
    ) -> Replayed:
        """Send what waits to the cluster of ``settings``. ``topic`` None: each record goes back to
        the topic it came from. Transactional ids begin as those of the query's first Kafka sink,
        wherever they go.

        Raises:
            ExactumError: as ``Replay``; what stands is marked.
        """
        prefixes = (target.transactional_id_prefix for target in self.targets.each)
        sink = sink_of(topic, settings, next(filter(None, prefixes), None))
        with closing(Replay(self.place.files, self.place.query_id, sink)) as replay:
            waiting = self.waiting(choice)
            if topic is not None:
                records = (
                    Record(each.identity, each.marks[:1], topic, each.key, each.value)
                    for each in waiting
                )
                return replay.send(records, on_sent)
            with closing(Originals(settings)) as originals:
                done = replay.send(originals.of(waiting), on_sent)
                return Replayed(done.sent, done.refused | originals.lost)
