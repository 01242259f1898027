"""Whether texts are JSON as a server takes it. Pure.

MySQL and MariaDB refuse what is none when the rows are loaded, and with it the epoch; also what is
nested deeper than they read, and half of a surrogate pair, which msgspec refuses as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np


def is_json(values: Any, depth_max: int) -> Any:
    """A NumPy mask of the texts (valid UTF-8) that are JSON; true where there is none."""
    decode = msgspec.json.Decoder(float_hook=str).decode  # a number of any size is one
    texts = values.to_pylist()
    return np.fromiter((t is None or _fits(t, decode, depth_max) for t in texts), bool, len(texts))


def _fits(text: str, decode: Callable[[str], Any], depth_max: int) -> bool:
    try:
        value = decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return False
    return text.count("[") + text.count("{") <= depth_max or not _is_deeper(value, depth_max)


def _is_deeper(value: Any, depth_max: int) -> bool:
    level = [value]
    for _ in range(depth_max + 1):
        inner = [v for v in level if isinstance(v, dict | list)]
        if not inner:
            return False
        level = [child for v in inner for child in (v.values() if isinstance(v, dict) else v)]
    return True
