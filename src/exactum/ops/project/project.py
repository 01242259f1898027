"""``exactum init``: a project with one query that works: every file of the template, or none."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from exactum._version import __version__
from exactum.errors import SettingRefused

TEMPLATE = Path(__file__).with_name("template")
FILES = {
    "job.py": "job.py",
    "sinks.py": "sinks.py",
    "orders.py": "orders.py",
    "test_job.py": "test_job.py",
    "pytest.ini": "pytest.ini",
    "Makefile": "Makefile",
    "README.md": "README.md",
    "requirements.txt": "requirements.txt",
    ".gitignore": "gitignore",  # under its own name it would hold for the sources of exactum
}
"""The files of a project, and of the template."""
VERSION = "VERSION"
"""Stands in ``requirements.txt`` for the version that makes the project."""


NOTHING = "Nothing was written."


def make_project(folder: Path) -> Path:
    """Make the project ``folder``, which is made too unless it is there and empty.

    Returns the folder's absolute path.

    Raises:
        SettingRefused: there is something in the folder, or it cannot be written. Nothing is left.
    """
    whole = folder.absolute()
    try:
        if whole.exists() and not whole.is_dir():
            raise SettingRefused(
                "PROJECT_FOLDER", f"{whole} is a file. {NOTHING} Name a new folder."
            )
        if whole.is_dir() and any(whole.iterdir()):
            raise SettingRefused(
                "PROJECT_FOLDER", f"{whole} is not empty. {NOTHING} Name a new folder."
            )
        _write(whole, [each for each in (whole, *whole.parents) if not each.exists()])
    except OSError as error:
        raise SettingRefused(
            "PROJECT_FOLDER",
            f"{whole} cannot be written: {error}. {NOTHING} Name a folder that you may write.",
        ) from error
    return whole


def _write(whole: Path, missing: list[Path]) -> None:
    """Write every file; where one fails, remove the others, and the folders that were missing."""
    written = []
    try:
        whole.mkdir(parents=True, exist_ok=True)
        for name, template in FILES.items():
            text = (TEMPLATE / template).read_text()
            if name == "requirements.txt":
                text = text.replace(VERSION, __version__)
            with open(whole / name, "x") as file:
                written.append(whole / name)
                file.write(text)
    except BaseException:
        for path in written:
            path.unlink()
        for folder in missing:
            if folder.exists():
                folder.rmdir()
        raise


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a project in FOLDER: a query from Kafka to Kafka, its test, a Makefile.

    FOLDER is new or empty. Needs no server: "make servers" in the project starts one.
    """
    made = make_project(folder)
    click.echo(f"{made} has a query that works: {', '.join(FILES)}.")
    click.echo("Next:")
    dashes = "-- " if os.fspath(folder).startswith("-") else ""
    click.echo(f"    cd {dashes}{shlex.quote(os.fspath(folder))}")
    click.echo("    make install    # pytest, and exactum with Spark")
    click.echo("    make test       # the query on a Kafka of its own")
    click.echo("    make servers    # a Kafka on this machine; README.md says how to go on")
