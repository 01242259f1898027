"""What a topic may be called, as every broker checks it
(org.apache.kafka.common.internals.Topic).
"""

from __future__ import annotations

import re

CHARACTERS_MAX = 249
KAFKAS_OWN = (
    b"__consumer_offsets",
    b"__transaction_state",
    b"__share_group_state",
    b"__cluster_metadata",
)
LEGAL = re.compile(rb"[a-zA-Z0-9._-]*")


def trouble(name: bytes) -> str:
    """Why no topic of a user can have this name, to be read after it; empty where one can."""
    if not name:
        return "is empty"
    if not LEGAL.fullmatch(name):
        return (
            "has other characters than a topic's name may have: A to Z, a to z, 0 to 9, '.', '_' "
            "and '-'"
        )
    if name in (b".", b".."):
        return "may not be a topic's name"
    if len(name) > CHARACTERS_MAX:
        return f"has {len(name)} characters, and a topic's name has at most {CHARACTERS_MAX}"
    return "is Kafka's own topic" if name in KAFKAS_OWN else ""
