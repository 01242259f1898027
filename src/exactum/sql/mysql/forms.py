r"""What texts MySQL's types take as what they say. Pure.

The server reads more than these, and makes something else of it: ``'3'`` is the bits 1 and 2 of a
SET, ``'70'`` the year 1970, ``'1230'`` twelve and a half minutes, and a date and time has its date
cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from exactum.sql.table import Form

_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROLS = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP = r"[0-9a-fA-F]{1,4}"
_HEX = "[0-9a-fA-F]"


def member_texts(declared: str) -> tuple[str, ...]:
    """The members of ``enum('a','it''s')`` or ``set(...)``, as the server's catalog spells them."""
    return tuple(
        _ESCAPED.sub(lambda m: "'" if m[1] is None else _CONTROLS.get(m[1], m[1]), text)
        for text in _MEMBER.findall(declared)
    )


def set_form(members: Sequence[str]) -> Form:
    """Members in the order of the declaration, which is the order in which the server gives them
    back.
    """
    rest = ""
    for member in reversed(members):
        literal = _literal(member)
        # Nothing follows this one, or it may stand before some of those that come later.
        rest = rf"(?:{literal}|(?:{literal},)?{rest})" if rest else literal
    return Form(
        f"(?:{rest})?",
        "its members as they are declared, in that order, each once, with commas between",
    )


def _literal(text: str) -> str:
    """``text`` as RE2 reads it; Python's own escapes are not all known there."""
    return "".join(c if c.isalnum() and c.isascii() else f"\\x{{{ord(c):X}}}" for c in text)


def time_form(digits: int) -> Form:
    """Up to 838:59:59, and no more digits after the point than the column keeps."""
    fraction = rf"(?:\.[0-9]{{1,{digits}}}0{{0,{6 - digits}}})?" if digits else r"(?:\.0{1,6})?"
    below = rf"(?:[0-9]{{1,2}}|[0-7][0-9]{{2}}|8[0-2][0-9]|83[0-7]):[0-5][0-9]:[0-5][0-9]{fraction}"
    last_hour = rf"838:(?:[0-4][0-9]:[0-5][0-9]|5[0-8]:[0-5][0-9]|59:[0-5][0-8]){fraction}"
    return Form(
        rf"-?(?:{below}|{last_hour}|838:59:59(?:\.0{{1,6}})?)",
        f"times from -838:59:59 to 838:59:59, with seconds and at most {digits} digits after the "
        "point",
    )


def _ipv6() -> str:
    forms = [rf"(?:{_GROUP}:){{7}}{_GROUP}", rf"(?:{_GROUP}:){{6}}{_IPV4}", r"::"]
    for before in range(8):
        for after in range(8 - before):
            if before + after == 0 or before + after > 7:
                continue
            head = ":".join([_GROUP] * before)
            tail = ":".join([_GROUP] * after)
            forms.append(f"{head}::{tail}")
            if after >= 1 and before + after <= 6:
                forms.append(f"{head}::" + "".join(f"{_GROUP}:" for _ in range(after - 1)) + _IPV4)
    return "|".join(forms)


def _uuid(dash: str) -> str:
    """MariaDB (10.11 and later) stores some with their bytes in another order, and knows these by
    the seventh byte and the ninth; so it has no room for a seventh of 80 and above together with a
    ninth of 01 to 80."""
    rest = f"{_HEX}{{3}}{dash}"
    high = "(?:00|8[1-9a-fA-F]|[9a-fA-F][0-9a-fA-F])"
    seventh_to_ninth = f"(?:[0-7]{rest}{_HEX}{{2}}|[89a-fA-F]{rest}{high})"
    return f"{_HEX}{{8}}{dash}{_HEX}{{4}}{dash}{seventh_to_ninth}{_HEX}{{2}}{dash}{_HEX}{{12}}"


TEXT_FORMS = {
    "year": Form(
        "0000|190[1-9]|19[1-9][0-9]|20[0-9]{2}|21[0-4][0-9]|215[0-5]",
        "the years 1901 to 2155, and 0000",
    ),
    "uuid": Form(
        f"{_uuid('-')}|{_uuid('')}", "a UUID that MariaDB can store, with or without its dashes"
    ),
    "inet4": Form(_IPV4, "an IPv4 address"),
    "inet6": Form(_ipv6(), "an IPv6 address"),
}
