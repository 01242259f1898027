"""A user's transaction handle as text and back: for the decision record, from which any process
finishes it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from exactum.errors import SettingRefused


def to_text(handle: Any, kind: type[Any] | None, where: str) -> str:
    """JSON text of text, numbers, lists, dictionaries with text as keys, None, or a dataclass of
    these.

    ``kind`` is the dataclass that ``from_text`` will be given.

    Raises:
        SettingRefused: the text would not give the same handle again.
    """
    value = dataclasses.asdict(handle) if _is_dataclass(handle) else handle
    if _is_dataclass(handle) and kind is not type(handle):
        raise SettingRefused(
            "SINK_TRANSACTION",
            f"{where}: its transactions are {type(handle).__name__}s, and nothing tells how to "
            f"read one back. Write class {where}(TwoPhaseCommitSink[{type(handle).__name__}]), or "
            "override serialize() and deserialize().",
        )
    try:
        text = json.dumps(value, allow_nan=False)
        again = from_text(text, kind if _is_dataclass(handle) else None)
    except (TypeError, ValueError) as error:
        raise SettingRefused(
            "SINK_TRANSACTION",
            f"{where}: its transaction {handle!r} is not made of JSON values ({error}). Use text, "
            "numbers, lists, dictionaries and dataclasses of them, or override serialize() and "
            "deserialize().",
        ) from error
    if again != handle:
        raise SettingRefused(
            "SINK_TRANSACTION",
            f"{where}: its transaction {handle!r} would be read back as {again!r}. Use lists in "
            "place of tuples and text as keys, or override serialize() and deserialize().",
        )
    return text


def from_text(text: str, kind: type[Any] | None) -> Any:
    """The handle that ``to_text`` was given; ``kind`` is its dataclass, or None for plain JSON
    values.

    Raises:
        TypeError, ValueError: the text is not that of such a handle.
    """
    value = json.loads(text)
    if kind is None or not dataclasses.is_dataclass(kind):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"a {kind.__name__} was expected, and {text!r} is none")
    return kind(**value)


def _is_dataclass(handle: Any) -> bool:
    return dataclasses.is_dataclass(handle) and not isinstance(handle, type)
