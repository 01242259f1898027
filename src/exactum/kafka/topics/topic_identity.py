"""Which topic it is, whatever it is called. Workers import this module, so it imports no client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TopicIdentity:
    """The ids of a topic and of its cluster: None where the brokers do not tell (topic ids came
    with Kafka 2.8).
    """

    topic_id: str | None
    cluster_id: str | None

    def is_another(self, than: TopicIdentity) -> bool:
        """True where an id that is known of both differs."""
        pairs = ((self.topic_id, than.topic_id), (self.cluster_id, than.cluster_id))
        return any(None not in pair and pair[0] != pair[1] for pair in pairs)

    def __str__(self) -> str:
        return f"topic id {self.topic_id or 'unknown'}, cluster {self.cluster_id or 'unknown'}"
