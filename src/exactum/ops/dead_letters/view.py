"""A query's dead letters, with what was sent again of them; and one replay, planned and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    refuse_loop,
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
        return replays(self.place.folder, self.place.query_id)

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


class ReplayPlan:
    """``topic`` None: each record goes back to its own topic. ``config``: a Kafka client's file for
    the cluster that it goes to.

    Raises:
        SettingRefused: nothing says where the brokers are, or the letters would go in circles.
    """

    def __init__(
        self, dead_letters: QueryDeadLetters, choice: Choice, topic: str | None, config: Path | None
    ) -> None:
        self._found = dead_letters
        self._choice = choice
        self._topic = topic
        settings = self._settings(config)
        self.servers = settings.pop(SERVERS)
        self._client = settings
        self._lost: list[DeadLetter] = []
        if topic is not None:
            refuse_loop(topic, getattr(dead_letters.target.sink, "topic", None))

    def dead_letters(self) -> Iterator[DeadLetter]:
        """What was chosen and was not sent before."""
        known = {**self._found.replays.sent, **self._found.replays.unfinished}
        return (
            dead_letter
            for dead_letter in self._found.each()
            if dead_letter.sent_to(known) is None and self._choice.takes(dead_letter)
        )

    def refuse_unknown(self) -> None:
        """
        Raises:
            SettingRefused: a letter was named, and there is none of this name.
        """
        named = self._choice.identities
        if named and (
            unknown := named - {dead_letter.identity for dead_letter in self._found.each()}
        ):
            raise SettingRefused(
                "NOTHING_OF_THAT_NAME",
                f"There is no dead letter {min(unknown)!r}. 'exactum dead-letters list --each' "
                "names them. Nothing was sent.",
            )

    def run(self, on_sent: Callable[[int], None]) -> Replayed:
        """
        Raises:
            ExactumError: as ``Replay``; what stands is marked.
        """
        settings = {SERVERS: self.servers, **self._client}
        sink = sink_of(self._topic, settings)
        replay = Replay(self._found.place.folder, self._found.place.query_id, sink)
        try:
            if self._topic is not None:
                topic = self._topic
                as_stored = (
                    Record(
                        dead_letter.identity,
                        dead_letter.marks[:1],
                        topic,
                        dead_letter.key,
                        dead_letter.value,
                    )
                    for dead_letter in self.dead_letters()
                )
                return replay.send(as_stored, on_sent)
            originals = Originals(settings)
            try:
                return replay.send(originals.of(self.dead_letters()), on_sent)
            finally:
                self._lost = originals.lost
                originals.close()
        finally:
            replay.close()

    def lost(self) -> dict[str, str]:
        """Why letters cannot go back, by their identity."""
        return {
            dead_letter.identity: "it is not known which record it was"
            if dead_letter.origin is None
            else "the record at its place is gone, or is another one; send the letter by --to"
            for dead_letter in self._lost
        }

    def _settings(self, config: Path | None) -> dict[str, str]:
        if config is not None:
            settings = client_settings_of(config)
            if SERVERS not in settings:
                raise SettingRefused(
                    "DEAD_LETTERS_UNKNOWN", f"--replay-config {config} does not say {SERVERS}."
                )
            return settings
        for target in self._found.targets.each:
            if target.client_settings is not None:
                return dict(target.client_settings)
        raise SettingRefused(
            "DEAD_LETTERS_UNKNOWN",
            "No sink of the query is Kafka, so it is not known where its brokers are: give "
            f"--replay-config FILE, a Kafka client's .properties with {SERVERS}.",
        )
