"""A process that makes a savepoint and is held when half of its files are copied.

Its arguments: the checkpoint, the new savepoint, and a folder for ``reached``, ``go`` and
``result``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from chaos.start import appear
from exactum.checkpoint.savepoint import create
from exactum.checkpoint.savepoint.manifest import Copied, copy_files
from exactum.errors import ExactumError
from exactum.storage.storage import Storage
from tests.kit.crash.deaths import hold


@dataclass(frozen=True)
class Made:
    """What became of it: the epoch that it holds, or the error (by name) that refused it."""

    batch_id: int = -1
    error: str = ""
    message: str = ""


def main(checkpoint: str, to: Path, folder: Path) -> None:
    def held_half_way(source: Storage, target: Storage, names: Sequence[str]) -> tuple[Copied, ...]:
        half = len(names) // 2
        first = copy_files(source, target, names[:half])
        if not (folder / "reached").exists():
            hold(folder)
        return first + copy_files(source, target, names[half:])

    create.copy_files = held_half_way  # type: ignore[attr-defined]
    try:
        made = Made(create.create(checkpoint, to).batch_id)
    except ExactumError as error:
        made = Made(error=type(error).__name__, message=str(error))
    appear(folder / "result", asdict(made))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
