"""The consumer group to which the source commits its offsets."""

from __future__ import annotations

from collections.abc import Iterator

from exactum.kafka.examination import READ, ClusterExamination
from exactum.ops.problem import Problem, error, ok

GROUP_LOG = "__consumer_offsets"
WITHOUT_MEMBERS = ("Empty", "Dead")


def findings(asked: ClusterExamination, group_id: str) -> Iterator[Problem]:
    """``group_id``: as ``read_kafka`` is given it."""
    area = f"group {group_id}"
    if asked.is_missing(GROUP_LOG):
        # To ask for the group's coordinator would make Kafka's own topic.
        yield ok(area, "No group has committed anything on this cluster yet: it was not tried.")
        return
    found = asked.group(group_id)
    if found is None or (found.rights is not None and READ not in found.rights):
        yield error(
            area,
            "The user may not read and commit its offsets.",
            "The source reads them at its start, and commits after each micro-batch.",
            f"Grant READ on the group {group_id} (docs/source.md lists the ACLs).",
        )
        return
    if found.state not in WITHOUT_MEMBERS:
        yield error(
            area,
            f"It has {found.members} members and is {found.state}.",
            "The members of a group alone may set its offsets, so that exactum's commits are "
            "refused; and both would read the same topics.",
            "Stop those consumers, or take a group of the query's own.",
        )
        return
    yield ok(area, "Its offsets can be read and committed; it has no members.")
