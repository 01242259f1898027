"""A column's type as an oracle: what a plain reader finds of a value of Spark's, or that it cannot be
held. Computed from the raw values alone (``kinds``): nothing here knows the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.kit.abuse import frames
from tests.kit.abuse.frames import BINARY, STRING
from tests.kit.abuse.kinds import Kind, Raw, is_utf8


class _Refused:
    """The column cannot hold it: the row belongs to the dead letters."""

    def __repr__(self) -> str:
        return "refused"


REFUSED = _Refused()
TEXTS = (STRING, Kind("string collate UTF8_LCASE"))
FITTING_SHARE = 0.93
Kinds = tuple[Kind, ...]
Reading = Any
"""What the reader's expression gives, once ``seen`` has made it comparable; or ``REFUSED``."""


@dataclass(frozen=True)
class Target:
    """A column type, and the kinds that it takes. ``read``: the reader's expression over ``{c}``.
    ``make``: odd values of its own. ``untried``: kinds that it takes as well, of which the server
    alone knows the values. ``as_text``: its table is sent as text, whatever the others are.
    """

    declared: str
    kinds: Kinds
    reading: Callable[[Kind, Raw], Reading]
    read: str = "{c}"
    seen: Callable[[Kind, Any], Reading] = lambda kind, found: found
    make: Callable[[random.Random, Kind], Raw] | None = None
    untried: Kinds = ()
    as_text: bool = False

    def read_of(self, kind: Kind, raw: Raw) -> Reading:
        return None if raw is None else self.reading(kind, raw)

    def seen_of(self, kind: Kind, found: Any) -> Reading:
        return None if found is None else self.seen(kind, found)

    def draw(self, kind: Kind, rng: random.Random) -> Raw:
        """Mostly something that fits: else every row would be put aside for one of its columns."""
        for _ in range(30 if rng.random() < FITTING_SHARE else 1):
            make = self.make if rng.random() < 0.9 else None
            value = frames.draw(kind, rng) if make is None else make(rng, kind)
            if value is not None and self.reading(kind, value) is not REFUSED:
                break
        return value


def not_taken(declared: str) -> Target:
    """No type of Spark goes into it: the server would cut or round a text, read it as another one, or
    has no room for some of its characters.
    """
    return Target(declared, (), lambda kind, raw: REFUSED)


def whole(declared: str, kinds: Kinds, low: int, high: int) -> Target:
    return Target(declared, kinds, lambda kind, raw: int(raw) if low <= raw <= high else REFUSED)


def exact(
    declared: str,
    kinds: Kinds,
    precision: int,
    scale: int,
    lowest: int | None = None,
    below: int | None = None,
    **more: Any,
) -> Target:
    def reading(kind: Kind, raw: Raw) -> Reading:
        value = Decimal(raw)
        _, digits, exponent = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * 10 ** (60 + int(exponent))  # of 10**-60
        unit = 10 ** (60 - scale)
        is_in = (lowest is None or value >= lowest) and (below is None or value < below)
        return (
            value if is_in and not unscaled % unit and unscaled // unit < 10**precision else REFUSED
        )

    return Target(declared, kinds, reading, **more)


def text(
    declared: str,
    holds: Callable[[str], bool] = lambda value: True,
    *,
    characters: int | None = None,
    padded: bool = False,
    **more: Any,
) -> Target:
    """``padded``: blanks at its end mean nothing."""

    def kept(raw: bytes) -> bytes:
        return raw.rstrip(b" ") if padded else raw

    def reading(kind: Kind, raw: Raw) -> Reading:
        if not is_utf8(raw):
            return REFUSED
        value = kept(raw).decode()
        fits = (characters is None or len(value) <= characters) and holds(value)
        return value.encode() if fits else REFUSED

    return Target(declared, TEXTS, reading, seen=lambda _, found: kept(found.encode()), **more)


def members(declared: str, names: tuple[str, ...], **more: Any) -> Target:
    """Of an enum."""
    near = ("", "1", "3", "0", names[0].upper(), names[0] + " ", " " + names[0], "nothing")

    def make(rng: random.Random, kind: Kind) -> Raw:
        return rng.choice(near if rng.random() < 0.3 else names).encode()

    return text(declared, lambda value: value in names, make=make, **more)


def blob(declared: str, least: int = 0, most: int = 2**32 - 1) -> Target:
    def make(rng: random.Random, kind: Kind) -> Raw:
        return rng.randbytes(rng.choice((least, least, most - 1, most, most + 1)))

    return Target(
        declared,
        (BINARY,),
        lambda kind, raw: raw if least <= len(raw) <= most else REFUSED,
        make=make if most < 1000 else None,
    )


def times(
    declared: str,
    kinds: Kinds,
    ends: tuple[int, int],
    read: str,
    digits: int | None = None,
    per_day: int | None = None,
) -> Target:
    """Of days or microseconds between these ends; of days as microseconds with ``per_day``."""
    step = 1 if digits is None else 10 ** (6 - digits)

    def reading(kind: Kind, raw: Raw) -> Reading:
        value = raw * per_day if per_day is not None and kind.name == "date" else raw
        return value if ends[0] <= value <= ends[1] and value % step == 0 else REFUSED

    def make(rng: random.Random, kind: Kind) -> Raw:
        if kind.name == "date":
            return rng.randrange(100_000)
        return rng.randrange(2**31 * 1_000_000) // step * step + (rng.random() < 0.1)

    seen = lambda kind, found: int(found)  # noqa: E731
    return Target(declared, kinds, reading, read, seen, make if step > 1 else None)
