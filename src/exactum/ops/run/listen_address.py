"""Where ``exactum run`` is to listen, as its option says it."""

from __future__ import annotations

from dataclasses import dataclass

import click

NONE = "none"


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


def listen_address(text: str) -> ListenAddress | None:
    """``[HOST:]PORT``, or None for ``none``. Named as the help is to show it."""
    if text == NONE:
        return None
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not [HOST:]PORT, nor {NONE!r}.")
    return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))
