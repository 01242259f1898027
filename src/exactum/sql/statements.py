"""The statements that stand in ``.sql`` files, for administrators to read: named, described, with
the privileges that they need.

    -- name: highest_batch
    -- What it is for.
    -- needs: SELECT on the ledger
    SELECT max(batch_id) FROM {ledger} WHERE scope = %s

Here is what both kinds of server are sent alike; in ``postgres/`` and ``mysql/`` what one of them
is sent (``statements.sql``), and exactum's own tables (``schema.sql``).

A per cent sign is doubled in them, as in all statements. What depends on a table's columns is made
in code, and its shape is in the function's docstring.
"""

from __future__ import annotations

import re
from importlib.resources import files

from exactum.sql.table import TableName

_NAME = "-- name: "
_WORD = re.compile(r"\w+")


class Statements:
    """The statements of one dialect, whose files are in ``package``; ``mark`` stands around a name
    in them.
    """

    def __init__(self, package: str, mark: str) -> None:
        here, shared = files(package), files("exactum.sql")
        self._mark = mark
        self._texts = {
            name: text
            for file in (
                shared.joinpath("statements.sql"),
                here.joinpath("schema.sql"),
                here.joinpath("statements.sql"),
            )
            for name, text in _read(file.read_text("utf-8"))
        }

    def __call__(self, name: str, /, **places: TableName | str) -> str:
        """The statement of that name, its places filled: a table's name is quoted, and anything
        else is a word (of letters, digits and underscores).

        Raises:
            KeyError: there is no such statement, or a place is not given.
            ValueError: what is given is no word.
        """
        return self._texts[name].format(**{n: self._filled(v) for n, v in places.items()})

    def quote(self, name: str) -> str:
        """An identifier for a statement's text, where a per cent sign is doubled."""
        mark = self._mark
        return f"{mark}{name.replace(mark, 2 * mark).replace('%', '%%')}{mark}"

    def quote_table(self, name: TableName) -> str:
        schema = "" if name.schema is None else f"{self.quote(name.schema)}."
        return schema + self.quote(name.table)

    def _filled(self, value: TableName | str) -> str:
        if isinstance(value, TableName):
            return self.quote_table(value)
        if not _WORD.fullmatch(value):
            raise ValueError(f"{value!r} cannot be part of a statement: it is no word.")
        return value


def unsubstituted(text: str) -> str:
    """``text`` for a statement that does not go through a client's substitution, or is shown."""
    return text.replace("%%", "%")


def _read(text: str) -> list[tuple[str, str]]:
    """The statements of one file, without comments, each on one line."""
    found = []
    for part in text.split(_NAME)[1:]:
        name, *lines = part.splitlines()
        words = " ".join(line for line in lines if not line.startswith("--")).split()
        found.append((name, " ".join(words)))
    return found
