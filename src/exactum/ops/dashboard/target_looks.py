"""Looks into a query's sinks: on request, beside the page, and never often.

A page is drawn at once from what was seen last; a thread of its own asks the brokers and databases,
which may take their time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import runs
from exactum.errors import ExactumError
from exactum.ops.dashboard.wording import now_ms
from exactum.ops.dead_letters.letter import DeadLetter
from exactum.ops.dead_letters.replay import replays
from exactum.ops.dead_letters.report import LetterGroup, groups
from exactum.ops.dead_letters.store import letters_of
from exactum.ops.targets.access import Access
from exactum.ops.targets.target import QueryTargets, targets_of
from exactum.ops.transactions.finding import OnRecord, Runs, TransactionFinding, judged
from exactum.ops.transactions.query_look import Trouble, inspector_of, look_at
from exactum.protocol.model import DecisionRecord, Incarnation
from exactum.protocol.sink import DEAD_LETTERS

logger = logging.getLogger("exactum")

FRESH_S = 10.0
"""Within this time nobody is asked again, however many browsers there are."""
LETTERS_FRESH_S = 60.0
"""Dead letters are read from their begin."""
TROUBLE_S = 60.0
"""So long after one that did not answer, or refused the login: some lock out who tries often."""
LOOKS_MAX = 50
THREADS_MAX = 4
FINDINGS_MAX = 500
LETTERS_READ_MAX = 20_000
LETTERS_SHOWN_MAX = 100


@dataclass(frozen=True)
class ShownLetter:
    """``sent_to`` is the topic that it was replayed into, None where it was not."""

    letter: DeadLetter
    sent_to: str | None


@dataclass(frozen=True)
class TargetLook:
    """``asked``: somebody is asked at all. ``at_ms`` is None while the first answer is awaited.

    ``letters`` are the newest that were read, ``is_cut``: there are more than were read.
    """

    asked: bool
    at_ms: int | None = None
    findings: tuple[TransactionFinding, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    groups: tuple[LetterGroup, ...] = ()
    letters: tuple[ShownLetter, ...] = ()
    is_cut: bool = False


NOT_ASKED = TargetLook(asked=False)
AWAITED = TargetLook(asked=True)

Ask = Callable[[QueryTargets], TargetLook]


class TargetLooks:
    """Of all queries of a page. ``access`` is None where nobody is to be asked. Used by threads."""

    def __init__(self, access: Access | None) -> None:
        self._access = access
        self._seen: dict[object, TargetLook] = {}
        self._again_s: dict[object, float] = {}
        self._asking: set[object] = set()
        self._lock = threading.Lock()

    def open_in(self, place: QueryPlace | None) -> TargetLook:
        """What is open or prepared under the query's name, as 'exactum transactions list' has
        it.
        """
        if place is None:
            return NOT_ASKED

        def ask(targets: QueryTargets) -> TargetLook:
            seen = look_at(place, targets)
            return TargetLook(True, None, tuple(seen.findings), tuple(seen.troubles))

        return self._look((place.folder, "open"), place, ask)

    def of_record(self, place: QueryPlace | None, record: DecisionRecord) -> TargetLook:
        """Where each transaction of a COMMIT in force stands now."""
        if place is None:
            return NOT_ASKED
        key = place.folder, record.epoch, record.attempt
        return self._look(key, place, lambda targets: _described(place, targets, record))

    def letters_in(self, place: QueryPlace | None) -> TargetLook:
        """The dead letters, as 'exactum dead-letters list' has them."""
        if place is None:
            return NOT_ASKED
        key = place.folder, "letters"
        return self._look(key, place, lambda targets: _letters(place, targets), LETTERS_FRESH_S)

    def _look(
        self, key: object, place: QueryPlace, ask: Ask, fresh_s: float = FRESH_S
    ) -> TargetLook:
        access = self._access
        if access is None:
            return NOT_ASKED
        with self._lock:
            due = time.monotonic() >= self._again_s.get(key, 0.0)
            if due and key not in self._asking and len(self._asking) < THREADS_MAX:
                self._asking.add(key)

                def run() -> None:
                    self._ask(key, lambda: ask(_targets(place, access)), fresh_s)

                threading.Thread(target=run, name="exactum-page-targets", daemon=True).start()
            return self._seen.get(key, AWAITED)

    def _ask(self, key: object, ask: Callable[[], TargetLook], fresh_s: float) -> None:
        found = AWAITED
        try:
            found = ask()
        except (ExactumError, OSError) as error:
            found = TargetLook(True, None, troubles=(Trouble("", str(error)),))
        except Exception as error:  # the page's trouble, and not the query's
            logger.exception("a sink could not be looked into")
            why = f"{type(error).__name__}: {error}"
            found = TargetLook(True, None, troubles=(Trouble("", why),))
        finally:
            with self._lock:
                while len(self._seen) >= LOOKS_MAX:
                    oldest = next(iter(self._seen))
                    del self._seen[oldest]
                    self._again_s.pop(oldest, None)
                self._seen[key] = replace(
                    found, at_ms=now_ms(), findings=found.findings[:FINDINGS_MAX]
                )
                wait_s = TROUBLE_S if found.troubles else fresh_s
                self._again_s[key] = time.monotonic() + wait_s
                self._asking.discard(key)


def _targets(place: QueryPlace, access: Access) -> QueryTargets:
    """What was given for the sinks of another query of the page is not this one's."""
    known = place.known_sinks()
    names = {sink.name for sink in known.sinks} if known is not None else set()
    urls = {name: url for name, url in access.urls.items() if name in names}
    return targets_of(known, replace(access, urls=urls))


def _described(place: QueryPlace, targets: QueryTargets, record: DecisionRecord) -> TargetLook:
    found: list[TransactionFinding] = []
    troubles: list[Trouble] = []
    known = runs(place.folder)
    its_runs = Runs(
        frozenset(Incarnation(run.incarnation) for run, alive in known if alive),
        frozenset(Incarnation(run.incarnation) for run, alive in known if not alive),
    )
    for name in dict.fromkeys(prepared.participant for prepared in record.prepared):
        prepared = record.of(name)
        target = targets.named(name)
        if target is None:
            troubles.append(Trouble(f"sink {name!r}", "the query does not have it any more"))
            continue
        try:
            inspector = inspector_of(target, place.query_id)
            try:
                views = inspector.describe(prepared)
            finally:
                inspector.close()
        except ExactumError as error:
            troubles.append(Trouble(f"sink {name!r}", str(error)))
            continue
        for one, view in zip(prepared, views, strict=True):
            seen = view.of_record(one, record.epoch.batch_id, record.attempt)
            owner = its_runs.owner(view.incarnation)
            found.append(judged(seen, OnRecord.COMMIT, owner, lives=bool(its_runs.living)))
    return TargetLook(True, None, tuple(found), tuple(troubles))


def _letters(place: QueryPlace, targets: QueryTargets) -> TargetLook:
    target = targets.named(DEAD_LETTERS)
    if target is None:
        why = "it has none: exactum.exactly_once(..., dead_letters=...) gives it one"
        return TargetLook(True, None, troubles=(Trouble("a sink for dead letters", why),))
    sent = replays(place.folder, place.query_id).sent
    newest: deque[DeadLetter] = deque(maxlen=LETTERS_SHOWN_MAX)
    count = 0

    def seen(letters: Iterator[DeadLetter]) -> Iterator[DeadLetter]:
        nonlocal count
        for letter in letters:
            count += 1
            newest.append(letter)
            yield letter

    found = groups(seen(islice(letters_of(target), LETTERS_READ_MAX)), sent)
    shown = tuple(ShownLetter(letter, letter.sent_to(sent)) for letter in reversed(newest))
    return TargetLook(
        True, None, groups=tuple(found), letters=shown, is_cut=count >= LETTERS_READ_MAX
    )
