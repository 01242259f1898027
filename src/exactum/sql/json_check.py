r"""Whether texts are JSON as a server takes it, for a whole Arrow array at once. Pure.

MySQL and MariaDB refuse what is none when the rows are loaded, and with it the epoch; also what is
nested deeper than they read, and half of a surrogate pair as ``\ud800``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

_HALF_PAIR = r"(?i)\\ud[89a-f]"


def is_json(values: Any, depth_max: int) -> Any:
    """A NumPy mask of the texts (valid UTF-8) that are JSON; true where there is none."""
    texts: list[str | None] = values.to_pylist()
    fits = np.ones(len(texts), bool)
    if not _all_parse([text for text in texts if text is not None]):
        fits = np.fromiter((text is None or _all_parse([text]) for text in texts), bool, len(texts))
    brackets = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    doubtful = pc.or_(pc.greater(brackets, depth_max), pc.match_substring_regex(values, _HALF_PAIR))
    for place in np.flatnonzero(
        pc.fill_null(doubtful, False).to_numpy(zero_copy_only=False) & fits
    ):
        text = texts[place]
        fits[place] = text is not None and _is_shallow_and_whole(text, depth_max)
    return fits


def _all_parse(texts: Sequence[str]) -> bool:
    """Whether each is one JSON value: all of them are parsed as one list, with a text that nobody
    can guess between.

    That each of these is an element of the list at its own place shows that what stands between two
    is one value.
    """
    between = secrets.token_hex(16)
    joined = f',"{between}",'.join(texts)
    try:
        parsed = json.loads(f"[{joined}]", parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return len(parsed) == max(0, 2 * len(texts) - 1) and all(
        found == between for found in parsed[1::2]
    )


def _refuse(constant: str) -> None:
    """NaN and the infinities, which are no JSON."""
    raise ValueError(constant)


def _is_shallow_and_whole(text: str, depth_max: int) -> bool:
    """The depth comes first: what is too deep for the server may be too deep for ``json.dumps`` as
    well.
    """
    value = json.loads(text, parse_int=str, parse_float=str)
    level, depth = [value], 0
    while level := [v for v in level if isinstance(v, dict | list)]:
        depth += 1
        if depth > depth_max:
            return False
        level = [child for v in level for child in (v.values() if isinstance(v, dict) else v)]
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
