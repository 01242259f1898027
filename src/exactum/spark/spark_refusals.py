"""Refusals in Spark's words: of a query that it cannot start, or of exactum's source, which Spark
hands on. There Spark's own advice loses records, and a Java trace stands around it.
"""

from __future__ import annotations

import re

from exactum.errors import CheckpointRefused, Refused, SettingRefused

_REFUSED = re.compile(
    r"\[(SOURCE_START|TOPIC_CHANGED)\] (exactum refuses .*?"
    r"(?:choose another start=|start again when it has ended|Nothing was written\.))"
)
"""What Spark was given in place of offsets, or was thrown by exactum's source, before any batch."""
_LOST = "Some data may have been lost because they are not available in Kafka any more"
_REASON = re.compile(r"^Reason: (.*?)\.?(?: SQLSTATE.*)?$", re.MULTILINE)
_UNMADE = re.compile(
    r"^An error occurred while calling o\d+\.start\.\n: \S+: "
    r"(?:mkdir of (?:file:)?(?P<made>.+) failed"
    r"|Destination exists and is not a directory: (?P<file>.+)"
    r"|(?P<denied>.+) \(Permission denied\))$",
    re.MULTILINE,
)


def refusal_in(spoken: str) -> Refused | None:
    """What Spark has said of a checkpoint, or has handed on from exactum, as exactum's own refusal;
    None where it has said something else.
    """
    refused = _REFUSED.search(spoken)
    if refused is not None:
        kind = SettingRefused if refused[1] == "SOURCE_START" else CheckpointRefused
        return kind(refused[1], refused[2])
    unmade = _UNMADE.search(spoken)
    if unmade is not None:
        place = next(filter(None, unmade.groups()))
        return SettingRefused(
            "CHECKPOINT_UNMADE",
            f"The query was not started: Spark cannot make or write {place}. Give it a checkpoint "
            "in a folder that this user may write. Nothing was written.",
        )
    if _LOST not in spoken:
        return None
    reason = _REASON.search(spoken)
    return CheckpointRefused(
        "SOURCE_GONE",
        "Spark does not find in Kafka what the checkpoint is to read next: "
        f"{reason[1] if reason else 'it does not say what'}.\nIs the checkpoint that of this query "
        "and this Kafka? Were topics deleted, recreated, or cleaned? Then start with a new one. "
        "Nothing of this batch was written.\nfailOnDataLoss=False leaves out what is missing "
        "(docs/misuse.md).",
    )
