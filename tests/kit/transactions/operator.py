"""``exactum transactions`` and its like as an operator types them, in this process. Sinks that a
recorded query has are in ``EXACTUM_SINKS``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from exactum.ops.cli import main
from tests.kit.transactions.given import of_checkpoint


@dataclass(frozen=True)
class Typed:
    """What came of a command."""

    status: int
    output: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)


def transactions(*arguments: str | Path, status: int, **more: Any) -> Typed:
    """Runs it, and asserts its exit status. ``more``: of CliRunner.invoke, such as input and env."""
    return typed("transactions", *arguments, status=status, **more)


def accept(
    checkpoint: Path,
    batch_id: int,
    *more: str | Path,
    status: int = 0,
    answer: str = "y\n",
    **how: Any,
) -> str:
    """``exactum accept``; what it prints."""
    arguments = ("--checkpoint", checkpoint, "--batch", str(batch_id), *more)
    return typed("accept", *arguments, status=status, input=answer, **how).output


def typed(*arguments: str | Path, status: int, **more: Any) -> Typed:
    """Any command of exactum."""
    ran = invoke(*arguments, **more)
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code == status, f"status {ran.exit_code}: {ran.output}"
    return Typed(ran.exit_code, ran.output)


NO_SINKS = {"EXACTUM_SINKS": ""}
"""``env`` of a command without any."""


def invoke(*arguments: str | Path, env: dict[str, str] | None = None, **more: Any) -> Result:
    """Any command, whatever comes of it."""
    words = [*map(str, arguments)]
    place = Path(words[words.index("--checkpoint") + 1]) if "--checkpoint" in words else None
    own = None if place is None else of_checkpoint(place)
    return CliRunner().invoke(main, words, env={"EXACTUM_SINKS": own or "", **(env or {})}, **more)


def listed(checkpoint: Path, *more: str | Path, status: int, **how: Any) -> list[dict[str, Any]]:
    """The transactions that ``list --json`` shows of a query."""
    typed = transactions("list", "--checkpoint", checkpoint, "--json", *more, status=status, **how)
    found: list[dict[str, Any]] = typed.json["transactions"]
    return found
