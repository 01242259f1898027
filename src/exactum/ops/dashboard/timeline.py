"""Facts that somebody who looks back wants to see, each as one line of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exactum.monitor.fact import Fact
from exactum.ops.dashboard.wording import count, seconds

QUIET, GOOD, WARN, BAD = "quiet", "good", "warn", "bad"


@dataclass(frozen=True)
class Moment:
    """``tone`` is quiet, good, warn or bad; ``detail`` a text that may be long."""

    at_ms: int
    title: str
    tone: str = QUIET
    detail: str = ""


def moment_of(fact: Fact) -> Moment | None:
    """The line of a fact; None for one that comes with every micro-batch.

    Raises:
        KeyError, TypeError, ValueError: the fact has not the fields of its name.
    """
    words = _WORDS.get(fact.name)
    if words is None:
        return None
    title, tone, detail = words(fact.fields)
    return Moment(fact.at_ms, title, tone, detail)


def _run_started(of: Mapping[str, Any]) -> tuple[str, str, str]:
    redelivered = list(of["redelivered"])
    did = []
    if redelivered:
        named = ", ".join(str(batch_id) for batch_id in redelivered[:20])
        did.append(f"sent the decided commit of micro-batch {named} again")
    if of["swept"]:
        did.append(f"aborted {count(int(of['swept']), 'leftover transaction')}")
    begin = f"A run begins at micro-batch {int(of['batch_id'])}"
    detail = f"run {of['run_id']}, incarnation {of['incarnation']}, {of['guarantee']}"
    return (f"{begin}: {'; '.join(did)}" if did else begin), GOOD, detail


def _run_ended(of: Mapping[str, Any]) -> tuple[str, str, str]:
    if not of["error"]:
        return "The run was stopped", QUIET, ""
    return f"The run ended with {of['error']}", BAD, str(of["reason"])


def _process_started(of: Mapping[str, Any]) -> tuple[str, str, str]:
    as_what = "A standby starts" if of["standby"] else "A process starts"
    return f"{as_what}, process {of['pid']}", QUIET, ""


def _process_ended(of: Mapping[str, Any]) -> tuple[str, str, str]:
    tone = QUIET if of["meaning"] == "done" else BAD
    return f"Process {of['pid']} ended", tone, str(of["text"])


def _restarts(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"It is started again in {seconds(float(of['delay_s']))}", WARN, ""


def _takes_over(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"The standby takes over, process {of['pid']}", WARN, ""


def _frozen(of: Mapping[str, Any]) -> tuple[str, str, str]:
    silent = seconds(float(of["silent_s"]))
    return f"Process {of['pid']} has not been heard of for {silent}", BAD, ""


def _finished(of: Mapping[str, Any]) -> tuple[str, str, str]:
    batch_ids, left = list(of["batch_ids"]), of["left"]
    troubles = "\n".join(str(trouble) for trouble in of["troubles"] or ())
    if left:
        return "A decided micro-batch could not be finished yet", BAD, troubles
    if not batch_ids:
        return "Nothing was left to finish", QUIET, troubles
    named = ", ".join(str(batch_id) for batch_id in batch_ids[:20])
    rows = count(int(of["rows"]), "row")
    return f"Decided micro-batch {named} was finished: {rows}", GOOD, troubles


def _operator_fenced(of: Mapping[str, Any]) -> tuple[str, str, str]:
    aborted = count(int(of["transactions"]), "transaction")
    title = f"An operator fenced its drivers by 'transactions abort'; {aborted} aborted"
    return title, WARN, f"micro-batch {of['batch_id']}, attempt {of['attempt']}"


def _older_fenced(of: Mapping[str, Any]) -> tuple[str, str, str]:
    leftovers = count(int(of["leftovers"]), "leftover transaction")
    return f"Older runs are fenced; {leftovers} aborted", QUIET, ""


def _redelivered(of: Mapping[str, Any]) -> tuple[str, str, str]:
    what = f"{count(int(of['rows']), 'row')} in {count(int(of['transactions']), 'transaction')}"
    return f"The commit of micro-batch {int(of['batch_id'])} was sent again: {what}", GOOD, ""


def _expired(of: Mapping[str, Any]) -> tuple[str, str, str]:
    what = count(int(of["transactions"]), "decided transaction")
    title = f"{of['participant']}: {what} undone outside (timeout, operator)"
    return title, BAD, f"{count(int(of['rows']), 'row')}, micro-batch {of['batch_id']}"


def _salvaged(of: Mapping[str, Any]) -> tuple[str, str, str]:
    rows = count(int(of["rows"]), "row")
    title = f"{of['participant']}: {rows} read back and committed again, nothing is lost"
    return title, GOOD, f"micro-batch {of['batch_id']}"


def _swept(of: Mapping[str, Any]) -> tuple[str, str, str]:
    what = count(int(of["transactions"]), "undecided transaction")
    return f"{of['participant']}: {what} aborted", QUIET, ""


def _fenced(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return "This run is fenced: a newer one has taken over", BAD, f"incarnation {of['by']}"


def _stalled(of: Mapping[str, Any]) -> tuple[str, str, str]:
    title = f"{of['topic']}-{of['partition']} is held back by an open transaction upstream"
    return title, WARN, held_by(of)


def held_by(of: Mapping[str, Any]) -> str:
    """Whose transaction upstream it is, of the fields of ``UpstreamStalled``."""
    if of.get("producer_id") is None:
        return "of a producer that could not be told"
    name = of.get("transactional_id")
    by = f"transactional id {name}" if name else "transactional id unknown"
    return f"{by}, producer id {of['producer_id']}"


def _moved(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{of['topic']}-{of['partition']} is no longer held back", GOOD, ""


def _former(of: Mapping[str, Any]) -> tuple[str, str, str]:
    title = f"The former sink {of['participant']} is out of reach"
    return title, WARN, f"what it may have left open stays: {of['place']}"


def _control(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"Control stream {of['topic']}: {count(int(of['keys']), 'rule')}", QUIET, ""


def _supervisor_ends(of: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"exactum run ends: {of['status']}", QUIET if of["status"] == "done" else BAD, ""


_WORDS: dict[str, Callable[[Mapping[str, Any]], tuple[str, str, str]]] = {
    "RunStarted": _run_started,
    "RunEnded": _run_ended,
    "ProcessStarted": _process_started,
    "ProcessEnded": _process_ended,
    "ProcessRestarts": _restarts,
    "ProcessTakesOver": _takes_over,
    "ProcessFrozen": _frozen,
    "DecidedFinished": _finished,
    "SupervisorEnds": _supervisor_ends,
    "OperatorFenced": _operator_fenced,
    "OlderRunsFenced": _older_fenced,
    "EpochRedelivered": _redelivered,
    "TransactionsExpired": _expired,
    "TransactionsSalvaged": _salvaged,
    "LeftoversSwept": _swept,
    "IncarnationFenced": _fenced,
    "UpstreamStalled": _stalled,
    "UpstreamMoved": _moved,
    "FormerSinkOutOfReach": _former,
    "ControlChanged": _control,
}
