"""``exactum transactions`` and its like as an operator types them, in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from exactum.ops.cli import main


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
    checkpoint: Path, batch_id: int, *more: str | Path, status: int = 0, answer: str = "y\n"
) -> str:
    """``exactum accept``; what it prints."""
    arguments = ("--checkpoint", checkpoint, "--batch", str(batch_id), *more)
    return typed("accept", *arguments, status=status, input=answer).output


def typed(*arguments: str | Path, status: int, **more: Any) -> Typed:
    """Any command of exactum."""
    ran = CliRunner().invoke(main, [*map(str, arguments)], **more)
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code == status, f"status {ran.exit_code}: {ran.output}"
    return Typed(ran.exit_code, ran.output)


def listed(checkpoint: Path, *more: str | Path, status: int) -> list[dict[str, Any]]:
    """The transactions that ``list --json`` shows of a query."""
    typed = transactions("list", "--checkpoint", checkpoint, "--json", *more, status=status)
    found: list[dict[str, Any]] = typed.json["transactions"]
    return found
