"""The page's tables of a server's column types, made from the sink's own rules: what goes where,
and what is refused.

One by Spark's types: the columns that take every value, and those that take what fits. One by the
columns: the rules for what fits, found by showing the odd values of each type (``frames.edges``) to
them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from exactum.sql.dialect import Dialect
from exactum.sql.rows import TableRules
from exactum.sql.table import Column
from tests.kit.abuse.frames import ATOMIC, DECIMALS, Frame, edges
from tests.kit.abuse.kinds import Kind, Raw, array, has_bad_text, map_, struct_
from tests.kit.environment import ROOT

PAGE = ROOT / "docs" / "reference" / "types.md"
STRING = Kind("string")
SHOWN = (*ATOMIC, *DECIMALS, array(STRING), map_(STRING, STRING), struct_({"a": STRING}))
WRITE = "EXACTUM_WRITE_DOCS"


def odd_values(kind: Kind) -> list[Raw]:
    """The odd values of a type, also within a nested one; not null."""
    if kind.name == "array":
        return [[value] for value in odd_values(kind.of[0])]
    if kind.name == "map":
        pairs = zip(*(odd_values(k) for k in kind.of), strict=False)
        return [[(key, value)] for key, value in pairs]
    if kind.name == "struct":
        return list(zip(*(odd_values(k) for k in kind.of), strict=False))
    return list(edges(kind))


def tables_of(
    dialect: Dialect, columns: Mapping[str, Column], notes: Mapping[str, str]
) -> list[str]:
    """Markdown. ``columns``: by how the page calls them. ``notes``: what a reader finds, where
    it is not the same.
    """
    rules: dict[str, dict[str, None]] = {label: {} for label in columns}
    places: dict[str, tuple[list[str], list[str]]] = {}
    for kind in SHOWN:
        every, fitting = places.setdefault(_called(kind), ([], []))
        for label, column in columns.items():
            if not dialect.takes(column, kind.simple):
                continue
            broken = refused(
                column, kind, [v for v in odd_values(kind) if not has_bad_text(kind, v)]
            )
            rules[label] |= dict.fromkeys(broken)
            mine = fitting if broken else every
            if label not in mine:
                mine.append(label)
    lines = [
        "| Spark | takes every value | refuses the rows that it cannot hold |",
        "|---|---|---|",
    ]
    for name, (every, fitting) in places.items():
        # Of the decimals one fits and another does not.
        whole, partly = (
            [c for c in columns if c in some] for some in (set(every) - set(fitting), set(fitting))
        )
        lines.append(_line([name, _listed(whole), _listed(partly)]))
    lines += ["", "| column | what it holds | a reader finds |", "|---|---|---|"]
    lines += [
        _line([f"`{label}`", "; ".join(rules[label]), notes.get(label, "")])
        for label in columns
        if rules[label] or label in notes
    ]
    return lines


def refused(column: Column, kind: Kind, values: Sequence[Raw]) -> list[str]:
    """The rules that some of the values break, without the name of the column and what the row
    has.
    """
    batch = Frame(("v",), (kind,), (list(values),), len(values)).batch()
    _, rejection = TableRules((column,), ("v",)).split(batch)
    start = f"column {column.name!r} ({column.type}) "
    reasons = () if rejection is None else rejection.reasons
    rules = [rule for text in reasons for rule in text.split(f", and {start}")]
    return list(dict.fromkeys(r.removeprefix(start).split(", the row has ")[0] for r in rules))


def check_page(name: str, lines: Sequence[str]) -> None:
    """The page has these lines between its marks for ``name``; ``EXACTUM_WRITE_DOCS=1`` writes
    them there.
    """
    begin, end = f"<!-- types of {name}: made by tests/abuse -->\n", f"<!-- end of {name} -->\n"
    text = PAGE.read_text()
    before, found, rest = text.partition(begin)
    assert found, f"{PAGE} has no line {begin!r}"
    inside, found, after = rest.partition(end)
    assert found, f"{PAGE} has no line {end!r}"
    wanted = "".join(f"{line}\n" for line in lines)
    if os.environ.get(WRITE):
        PAGE.write_text(before + begin + wanted + end + after)
        return
    assert inside == wanted, (
        f"the table of {name} in {PAGE} is not what the rules say: run this test with {WRITE}=1"
    )


def _called(kind: Kind) -> str:
    return "array, map, struct" if kind.of else kind.name


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
