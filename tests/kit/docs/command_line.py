"""Makes docs/reference/command-line.md of what the commands say with ``--help``: ``make docs`` does."""

from __future__ import annotations

from collections.abc import Iterator

import click

from exactum.ops.cli import main
from tests.kit.environment import ROOT

PAGE = ROOT / "docs" / "reference" / "command-line.md"
WIDTH = 90
HEAD = """\
# Command line

What each command says with `--help`.

What commands are for stands in the guides: [keep a query running](../running.md), [savepoints](../savepoints.md),
[on call](../operations.md), [transactions](../transactions.md), [before the first start](../doctor.md), [the page](../dashboard.md).
"""


def page() -> str:
    """The whole page, as the commands are now."""
    sections = [
        f"\n{'##' if len(path) < 3 else '###'} {' '.join(path)}\n\n```text\n{text}\n```\n"
        for path, text in helps(("exactum",), main, None)
    ]
    return HEAD + "".join(sections)


def helps(
    path: tuple[str, ...], command: click.Command, parent: click.Context | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each command below ``command`` with what it says, itself first."""
    context = click.Context(
        command, parent, path[-1], terminal_width=WIDTH, max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            if not child.hidden:
                yield from helps((*path, name), child, context)


if __name__ == "__main__":
    PAGE.write_text(page())
