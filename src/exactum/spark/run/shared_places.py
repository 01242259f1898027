"""Places that two of a query's sinks would share, or a sink and the checkpoint, so that readers of
the one find what is the other's; and names that two would share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from exactum.errors import SettingRefused
from exactum.files.place import is_found_below
from exactum.protocol.sink import OpenSink
from exactum.spark.run.delivery import Targets


def refuse_shared_targets(targets: Targets, opened: Sequence[tuple[str, OpenSink]]) -> None:
    """Two sinks on one target write each row of the batch twice, unless each takes a part of it by
    ``rows=``. Who reads a folder finds what lies in a folder below it as well.

    Raises:
        SettingRefused: there are two such sinks, or dead letters go where rows go; or only their
            order tells two sinks apart.
    """
    refuse_equal_names(targets, opened)
    sinks = targets.all()
    for one, two in combinations(range(len(opened)), 2):
        (first, at_first), (second, at_second) = opened[one], opened[two]
        if at_first.target is None or at_first.target != at_second.target:
            for outer, inner in ((one, two), (two, one)):
                refuse_folder_within(targets, opened, outer, inner)
            continue
        if two == len(targets.sinks):
            raise SettingRefused(
                "TARGET_SHARED",
                f"The dead letters go to the target of the sink {first!r}: {at_first.target}. Its "
                "readers would take them for rows. Give them a place of their own. Nothing was "
                "written.",
            )
        if sinks[one].rows is None or sinks[two].rows is None or sinks[one].rows == sinks[two].rows:
            raise SettingRefused(
                "TARGET_SHARED",
                f"Two sinks, {first!r} and {second!r}, write to one target: {at_first.target}. "
                "Every row would be there twice. Remove one, or give each a rows= of its own "
                "that takes its part of the batch. Nothing was written.",
            )


def refuse_equal_names(targets: Targets, opened: Sequence[tuple[str, OpenSink]]) -> None:
    """Sinks that say no target of theirs, as those of the user's own, are told apart by their names
    alone. Two of one name are numbered: in another order, the next start would give to the one what
    the other has decided.

    Raises:
        SettingRefused: there are two such sinks.
    """
    untold: dict[str, str] = {}
    for sink, (name, open_sink) in zip(targets.sinks, opened, strict=False):
        if open_sink.target is not None:
            continue
        if sink.name in untold:
            raise SettingRefused(
                "SINK_NAME_TWICE",
                f"There are two sinks of the name {sink.name!r}, and only their order tells which "
                "is which: a start with another order would give the rows of the one to the "
                "other. Give each a name= of its own, and keep it. (A checkpoint that has run "
                f"with them knows them as {untold[sink.name]!r} and {name!r}: these go on with "
                "it.) Nothing was written.",
            )
        untold[sink.name] = name


def refuse_folder_within(
    targets: Targets, opened: Sequence[tuple[str, OpenSink]], outer: int, inner: int
) -> None:
    """
    Raises:
        SettingRefused: the sink ``inner`` writes where readers of ``outer`` look, and not a part of
            the batch that ``outer`` does not take.
    """
    (first, around), (second, within) = opened[outer], opened[inner]
    if not is_found_below(around.folder, within.folder):
        return
    sinks, dead = targets.all(), len(targets.sinks)
    own = None not in (sinks[outer].rows, sinks[inner].rows)
    if dead not in (outer, inner) and own and sinks[outer].rows != sinks[inner].rows:
        return
    what = "The dead letters go" if inner == dead else f"The sink {second!r} writes"
    raise SettingRefused(
        "FOLDER_WITHIN",
        f"{what} to {within.folder}, a folder within that of the sink {first!r}, whose readers "
        "would take its files for theirs. Give it a place of its own, or a name that readers pass "
        "over: one that begins with an underscore. Nothing was written.",
    )


def refuse_within(opened: Sequence[tuple[str, OpenSink]], what: str, place: str) -> None:
    """``what`` lies at ``place``: its folder or prefix, or empty where there is none.

    Raises:
        SettingRefused: readers of a sink's folder would find files there that are no rows.
    """
    for name, sink in opened:
        if is_found_below(sink.folder, place):
            raise SettingRefused(
                "FOLDER_WITHIN",
                f"The {what} {place} lies within the folder of the sink {name!r}, whose "
                "readers would take its files for rows. Give it a folder outside of that one, or "
                "one whose name begins with an underscore. Nothing was written.",
            )
