"""Looks at the transactions in a query's sinks: on request, beside the page, and never often.

A page is drawn at once from what was seen last; a thread of its own asks the brokers and databases,
which may take their time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import runs
from exactum.errors import ExactumError
from exactum.ops.dashboard.wording import now_ms
from exactum.ops.targets.access import Access
from exactum.ops.targets.target import QueryTargets, targets_of
from exactum.ops.transactions.finding import OnRecord, Runs, TransactionFinding, judged
from exactum.ops.transactions.query_look import Trouble, inspector_of, look_at
from exactum.protocol.model import DecisionRecord, Incarnation

logger = logging.getLogger("exactum")

FRESH_S = 10.0
"""Within this time nobody is asked again, however many browsers there are."""
TROUBLE_S = 60.0
"""So long after one that did not answer, or refused the login: some lock out who tries often."""
LOOKS_MAX = 50
THREADS_MAX = 4
FINDINGS_MAX = 500


@dataclass(frozen=True)
class TargetLook:
    """``asked``: somebody is asked at all. ``at_ms`` is None while the first answer is awaited."""

    asked: bool
    at_ms: int | None = None
    findings: tuple[TransactionFinding, ...] = ()
    troubles: tuple[Trouble, ...] = ()


NOT_ASKED = TargetLook(asked=False)
AWAITED = TargetLook(asked=True)


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
        return NOT_ASKED if place is None else self._look(place.folder, place, None)

    def of_record(self, place: QueryPlace | None, record: DecisionRecord) -> TargetLook:
        """Where each transaction of a COMMIT in force stands now."""
        if place is None:
            return NOT_ASKED
        return self._look((place.folder, record.epoch, record.attempt), place, record)

    def _look(self, key: object, place: QueryPlace, record: DecisionRecord | None) -> TargetLook:
        if self._access is None:
            return NOT_ASKED
        with self._lock:
            due = time.monotonic() >= self._again_s.get(key, 0.0)
            if due and key not in self._asking and len(self._asking) < THREADS_MAX:
                self._asking.add(key)
                arguments = (key, place, record, self._access)
                threading.Thread(
                    target=self._ask, args=arguments, name="exactum-page-targets", daemon=True
                ).start()
            return self._seen.get(key, AWAITED)

    def _ask(
        self, key: object, place: QueryPlace, record: DecisionRecord | None, access: Access
    ) -> None:
        findings: Sequence[TransactionFinding] = ()
        troubles: Sequence[Trouble] = ()
        try:
            targets = _targets(place, access)
            if record is None:
                seen = look_at(place, targets)
                findings, troubles = seen.findings, seen.troubles
            else:
                findings, troubles = _described(place, targets, record)
        except (ExactumError, OSError) as error:
            troubles = [Trouble("", str(error))]
        except Exception as error:  # the page's trouble, and not the query's
            logger.exception("the sinks of %s could not be looked at", place)
            troubles = [Trouble("", f"{type(error).__name__}: {error}")]
        finally:
            with self._lock:
                while len(self._seen) >= LOOKS_MAX:
                    oldest = next(iter(self._seen))
                    del self._seen[oldest]
                    self._again_s.pop(oldest, None)
                found = tuple(findings[:FINDINGS_MAX])
                self._seen[key] = TargetLook(True, now_ms(), found, tuple(troubles))
                self._again_s[key] = time.monotonic() + (TROUBLE_S if troubles else FRESH_S)
                self._asking.discard(key)


def _targets(place: QueryPlace, access: Access) -> QueryTargets:
    """What was given for the sinks of another query of the page is not this one's."""
    known = place.known_sinks()
    names = {sink.name for sink in known.sinks} if known is not None else set()
    urls = {name: url for name, url in access.urls.items() if name in names}
    return targets_of(known, replace(access, urls=urls))


def _described(
    place: QueryPlace, targets: QueryTargets, record: DecisionRecord
) -> tuple[list[TransactionFinding], list[Trouble]]:
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
    return found, troubles
