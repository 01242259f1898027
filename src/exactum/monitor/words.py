"""How numbers, durations, times and events are written: the same in a log, on a terminal and on the
page.

The numbers take whatever a history holds, and never raise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from exactum.checkpoint.layout import QUERY

NOTHING = "\N{EN DASH}"
TEXT_MAX = 4_000
"""Longest text that is shown whole."""
NAMED_MAX = 20
STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"))
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_number(value: Any) -> TypeGuard[float]:
    """No truth value, and not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


# ---- numbers and times -----------------------------------------------------------------------


def number(value: Any) -> str:
    """``1,234`` and ``0.25``; a dash where it is not known."""
    if not is_number(value):
        return NOTHING
    if abs(value) == float("inf"):
        return "∞"
    if isinstance(value, int) or abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def count(amount: Any, one: str, many: str = "") -> str:
    """``1 row``, ``1,234 rows``."""
    return f"{number(amount)} {one if amount == 1 else many or f'{one}s'}"


def size(value: Any) -> str:
    """Bytes: ``512 B``, ``1.5 MiB``."""
    if not is_number(value):
        return NOTHING
    for unit, word in SIZES:
        if value >= unit:
            return f"{value / unit:.1f} {word}"
    return f"{value:.0f} B"


def duration(seconds: Any) -> str:
    """``0.4 ms``, ``850 ms``, ``3.2 s``, ``12 s``, ``3 min 20 s``, ``2 d 5 h``."""
    if not is_number(seconds) or abs(seconds) == float("inf"):
        return NOTHING
    if seconds < 0:
        return f"\N{MINUS SIGN}{duration(-seconds)}"
    if 0 < seconds < 0.9995:
        ms = seconds * 1_000
        return f"{ms:.0f} ms" if ms >= 10 or ms == int(ms) else f"{ms:.1f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for index, (length, unit) in enumerate(STEPS):
        if whole >= length:
            smaller, word = STEPS[index + 1] if index + 1 < len(STEPS) else (1, "s")
            rest = whole % length // smaller
            return f"{whole // length:,} {unit}" + (f" {rest} {word}" if rest else "")
    return f"{whole} s"


def millis(value: Any) -> str:
    """A duration that is given in ms."""
    return duration(value / 1_000) if is_number(value) else NOTHING


def ago(at_ms: Any, now: int) -> str:
    """``3.2 s ago``. A clock that is ahead of ours by a little is no news."""
    if not is_number(at_ms):
        return NOTHING
    passed_s = (now - at_ms) / 1_000
    if passed_s < 1:
        return "just now" if passed_s > -5 else f"in {duration(round(-passed_s))}"
    # After ten minutes nobody asks for the seconds.
    words = duration(round(passed_s)).split()
    return f"{' '.join(words[:2] if passed_s >= 600 else words)} ago"


def time_of(at_ms: Any) -> datetime | None:
    """In the time zone of this machine."""
    try:
        return datetime.fromtimestamp(at_ms / 1_000).astimezone()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def clock(at_ms: Any) -> str:
    """``14:03:07``, with the date before it where that is another day than today."""
    at, now = time_of(at_ms), time_of(now_ms())
    if at is None or now is None:
        return NOTHING
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def iso(at_ms: Any) -> str:
    at = time_of(at_ms)
    return "" if at is None else at.isoformat(timespec="milliseconds")


# ---- texts -----------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Any value as text, cut where it would fill the page."""
    if value is None or value == "":
        return NOTHING
    words = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    # A lone half of a surrogate pair cannot be sent as UTF-8.
    words = words.encode("utf-8", "replace").decode()
    if len(words) > TEXT_MAX:
        return f"{words[:TEXT_MAX]} … {len(words) - TEXT_MAX:,} more characters"
    return words


def first_line(value: Any, length_max: int = 160) -> str:
    """The begin of a text that may be long."""
    words = text(value)
    line = words.splitlines()[0] if words.strip() else words
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


# ---- events ----------------------------------------------------------------------------------

QUIET, GOOD, WARN, BAD = "quiet", "good", "warn", "bad"
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Sentence:
    """What an event says. ``tone`` is quiet, good, warn or bad; ``detail`` may be long."""

    title: str
    tone: str = QUIET
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.title}; {self.detail}" if self.detail else self.title


def sentence_of(name: str, fields: Fields) -> Sentence | None:
    """An event or a supervisor's fact in words, by its name; None for one that has none.

    Raises:
        KeyError, TypeError, ValueError: it has not the fields of its name.
    """
    said = _SENTENCES.get(name)
    return None if said is None else said(fields)


def held_by(of: Fields) -> str:
    """Whose transaction upstream it is, of the fields of ``UpstreamStalled``."""
    if of.get("producer_id") is None:
        return "of an unknown producer"
    name = of.get("transactional_id")
    by = f"transactional id {name}" if name else "transactional id unknown"
    return f"{by}, producer id {of['producer_id']}"


def _batches(batch_ids: Any) -> str:
    return ", ".join(str(batch_id) for batch_id in list(batch_ids)[:NAMED_MAX])


def _rows(of: Fields) -> str:
    transactions = count(int(of["transactions"]), "transaction")
    return f"{count(int(of['rows']), 'row')} in {transactions}"


def _run_started(of: Fields) -> Sentence:
    did = []
    if of["redelivered"]:
        did.append(f"sent the decided commit of micro-batch {_batches(of['redelivered'])} again")
    if of["swept"]:
        did.append(f"aborted {count(int(of['swept']), 'leftover transaction')}")
    title = f"A run begins at micro-batch {int(of['batch_id'])}"
    called = f"query {of['name']!r}, " if of["name"] else ""
    where = "; ".join(str(offset) for offset in of["offsets"]) or "the start position"
    return Sentence(
        f"{title}: {'; '.join(did)}" if did else title,
        GOOD,
        f"{called}run {of['run_id']}, incarnation {of['incarnation']}, {of['guarantee']}; "
        f"checkpoint {of['checkpoint']}, from {where}",
    )


def _run_ended(of: Fields) -> Sentence:
    if not of["error"] and of["reason"]:
        return Sentence("The run ended with its script", WARN, str(of["reason"]))
    if not of["error"]:
        return Sentence("The run had read all" if of.get("has_read_all") else "The run was stopped")
    return Sentence(f"The run ended with {of['error']}", BAD, str(of["reason"]))


def _progress(of: Fields) -> Sentence:
    parts = [count(of["input_rows"], "row") + " in", f"{number(of['processed_rows_per_s'])} rows/s"]
    if of["state_rows"] is not None:
        parts.append(f"state {count(of['state_rows'], 'row')}")
    return Sentence(", ".join(parts))


def _lag(of: Fields) -> Sentence:
    since = "" if of["lag_seconds"] is None else f", for {duration(of['lag_seconds'])}"
    return Sentence(
        f"{of['topic']}: {count(of['lag_records'], 'record')} not read yet{since}; "
        f"{number(of['lso_gap_records'])} behind open transactions"
    )


def _epoch_began(of: Fields) -> Sentence:
    records = of["input_records"]
    return Sentence("Begins" if records is None else f"Begins, {count(records, 'record')} to read")


def _epoch_completed(of: Fields) -> Sentence:
    phases = ", ".join(f"{name} {millis(ms)}" for name, ms in of["phase_ms"].items())
    return Sentence(f"Completed: {_rows(of)}", QUIET, phases)


def _process_ended(of: Fields) -> Sentence:
    tone = QUIET if of["meaning"] == "done" else BAD
    return Sentence(f"Process {of['pid']} ended", tone, str(of["text"]))


def _finished(of: Fields) -> Sentence:
    title = f"Decided micro-batch {_batches(of['batch_ids'])} was finished"
    return Sentence(f"{title}: {count(int(of['rows']), 'row')}", GOOD)


def _operator_fenced(of: Fields) -> Sentence:
    aborted = count(int(of["transactions"]), "transaction")
    title = f"An operator fenced its drivers by 'transactions abort'; {aborted} aborted"
    return Sentence(title, WARN, f"micro-batch {of['batch_id']}, attempt {of['attempt']}")


def _expired(of: Fields) -> Sentence:
    what = count(int(of["transactions"]), "decided transaction")
    title = f"{of['participant']}: {what} undone outside (timeout, operator)"
    return Sentence(title, BAD, f"{count(int(of['rows']), 'row')}, micro-batch {of['batch_id']}")


def _salvaged(of: Fields) -> Sentence:
    title = f"{of['participant']}: read back and written again, nothing is lost"
    return Sentence(title, GOOD, f"{_rows(of)}, micro-batch {of['batch_id']}")


def _stalled(of: Fields) -> Sentence:
    return Sentence(
        f"{of['topic']}-{of['partition']} is held back by an open transaction upstream",
        WARN,
        f"{held_by(of)}; at offset {of['last_stable_offset']} since {iso(of['since_ms'])}, before "
        f"{count(of['lso_gap'], 'offset')}",
    )


def _former_sink(of: Fields) -> Sentence:
    return Sentence(
        f"The former sink {of['participant']} is out of reach",
        WARN,
        f"{of['place']}: what its tasks left open stays until the target times it out or you "
        f"settle it. Start once with it, or remove it from the newest file in {QUERY} of the "
        "checkpoint once nothing of it is open",
    )


_SENTENCES: dict[str, Callable[[Fields], Sentence]] = {
    "RunStarted": _run_started,
    "RunEnded": _run_ended,
    "QueryWaits": lambda of: Sentence(f"Has begun no micro-batch yet: {of['doing']}"),
    "Progress": _progress,
    "InputLag": _lag,
    "EpochBegan": _epoch_began,
    "EpochDecided": lambda of: Sentence(f"Decided: {_rows(of)}"),
    "EpochCompleted": _epoch_completed,
    "EpochAbandoned": lambda of: Sentence(
        f"Attempt {int(of['attempt'])} was given up", BAD, str(of["reason"])
    ),
    "EpochRedelivered": lambda of: Sentence(
        f"The commit of micro-batch {int(of['batch_id'])} was sent again: {_rows(of)}", GOOD
    ),
    "OlderRunsFenced": lambda of: Sentence(
        f"Older runs are fenced; {count(int(of['leftovers']), 'leftover transaction')} aborted"
    ),
    "TransactionsExpired": _expired,
    "TransactionsSalvaged": _salvaged,
    "LeftoversSwept": lambda of: Sentence(
        f"{of['participant']}: {count(int(of['transactions']), 'undecided transaction')} aborted"
    ),
    "FormerSinkOutOfReach": _former_sink,
    "ControlChanged": lambda of: Sentence(
        f"Control stream {of['topic']}: {count(int(of['keys']), 'rule')}"
    ),
    "RowsDeadLettered": lambda of: Sentence(
        f"{count(of['rows'], 'row')} put into the dead letters", WARN
    ),
    "RowsSkipped": lambda of: Sentence(
        f"{count(of['rows'], 'record')} that could not be decoded left out", WARN
    ),
    "UpstreamStalled": _stalled,
    "UpstreamMoved": lambda of: Sentence(
        f"{of['topic']}-{of['partition']} is no longer held back", GOOD
    ),
    "IncarnationFenced": lambda of: Sentence(
        "This run is fenced: a newer one has taken over", BAD, f"incarnation {of['by']}"
    ),
    "ProcessStarted": lambda of: Sentence(
        f"{'A standby' if of['standby'] else 'A process'} starts, process {of['pid']}"
    ),
    "ProcessEnded": _process_ended,
    "ProcessRestarts": lambda of: Sentence(
        f"It is started again in {duration(float(of['delay_s']))}", WARN
    ),
    "ProcessTakesOver": lambda of: Sentence(f"The standby takes over, process {of['pid']}", WARN),
    "ProcessFrozen": lambda of: Sentence(
        f"Process {of['pid']} has not been heard of for {duration(float(of['silent_s']))}", BAD
    ),
    "DecidedFinished": _finished,
    "OperatorFenced": _operator_fenced,
    "SupervisorEnds": lambda of: Sentence(
        f"exactum run ends: {of['status']}", QUIET if of["status"] == "done" else BAD
    ),
}
