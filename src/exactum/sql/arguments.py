"""What the arguments of a SQL sink may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exactum.errors import SettingRefused


def one_of(kind: type[Any], setting: str, value: str, where: str) -> Any:
    """The member of the enum ``kind`` that ``value`` spells.

    Raises:
        SettingRefused: it spells none.
    """
    try:
        return kind(value)
    except ValueError:
        choices = " or ".join(repr(k.value) for k in kind)
        raise SettingRefused(
            "SQL_ARGUMENT", f"{where}: {setting}={value!r} must be {choices}."
        ) from None


def column_names(setting: str, value: Sequence[str] | str | None, where: str) -> tuple[str, ...]:
    """One column's name, or a list of them, as a tuple.

    Raises:
        SettingRefused: it is neither, or a name comes twice.
    """
    if value is not None and not isinstance(value, str | list | tuple):
        raise SettingRefused(
            "SQL_ARGUMENT",
            f"{where}: {setting}={value!r} must be the name of a column, or a list of names.",
        )
    found = (value,) if isinstance(value, str) else tuple(value or ())
    if not all(isinstance(n, str) and n for n in found) or len(set(found)) != len(found):
        raise SettingRefused(
            "SQL_ARGUMENT", f"{where}: {setting} must be a list of different column names."
        )
    return found
