"""The statements that stand in ``.sql`` files, for administrators to read: named, described, with
the privileges that they need.

    -- name: highest_batch
    -- What it is for.
    -- needs: SELECT on the ledger
    SELECT max(batch_id) FROM {ledger} WHERE scope = %s

| file | holds |
|---|---|
| ``statements.sql`` | what both kinds of server are sent alike |
| ``postgres/statements.sql``, ``mysql/statements.sql`` | what one of them is sent |
| ``postgres/schema.sql``, ``mysql/schema.sql`` | exactum's own tables |

A per cent sign is doubled in them, as in all statements. What depends on a table's columns is made
in code, and its shape is in the function's docstring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

from exactum.sql.table import TableName

_NAME = "-- name: "
_PLACE = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"\w+")


class Statements:
    """The statements of one dialect.

    Args:
        package: where its files are.
        quote_table: how the dialect quotes a table's name for a statement's text.
    """

    def __init__(self, package: str, quote_table: Callable[[TableName], str]) -> None:
        here, shared = files(package), files("exactum.sql")
        self._texts = {
            **_read(shared.joinpath("statements.sql").read_text("utf-8")),
            **_read(here.joinpath("schema.sql").read_text("utf-8")),
            **_read(here.joinpath("statements.sql").read_text("utf-8")),
        }
        self._quote_table = quote_table

    def __call__(self, name: str, /, **places: TableName | str) -> str:
        """The statement of that name, its places filled: a table's name is quoted, and anything
        else is a word (of letters, digits and underscores). What it has no place for is left out.

        Raises:
            KeyError: there is no such statement, or a place is not given.
            ValueError: what is given is no word.
        """
        return _PLACE.sub(lambda found: self._filled(places[found[1]]), self._texts[name])

    def _filled(self, value: TableName | str) -> str:
        if isinstance(value, TableName):
            return self._quote_table(value)
        if not _WORD.fullmatch(value):
            raise ValueError(f"{value!r} cannot be part of a statement: it is no word.")
        return value


def unsubstituted(text: str) -> str:
    """``text`` for a statement that does not go through a client's substitution, or is shown."""
    return text.replace("%%", "%")


def _read(text: str) -> Mapping[str, str]:
    """The statements of one file, without comments, each on one line."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_NAME):
            lines = found.setdefault(line.removeprefix(_NAME), [])
        elif not line.startswith("--"):
            lines.append(line)
    return {name: " ".join(" ".join(lines).split()) for name, lines in found.items()}
