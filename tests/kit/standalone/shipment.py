"""What docs/cluster.md says about shipping: nodes with the clients, and exactum as one file for
--py-files.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.kit.packaging.metadata import built
from tests.kit.waiting import WAIT_MAX_S

EXECUTORS_NEED = ("confluent_kafka", "pyarrow", "numpy")


def shipped_file(folder: Path) -> Path:
    """The wheel, named .zip, for Spark puts no .whl on the executors' path."""
    wheel = built(folder)
    return wheel.rename(wheel.with_suffix(".zip"))


def python_without_exactum(folder: Path, prefixes: tuple[str, ...] = ("",)) -> Path:
    """The Python of an environment that has what this one has and begins with one of
    ``prefixes``, but no exactum.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        timeout=WAIT_MAX_S,
        capture_output=True,
        text=True,
        env=environment(),
    )
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if installed.name.startswith(prefixes) and "exactum" not in installed.name:
            (Path(found.stdout.strip()) / installed.name).symlink_to(installed)
    return python


def can_import_exactum(python: Path) -> bool:
    """Whether this Python has exactum without anything being shipped."""
    tried = subprocess.run(
        [python, "-c", "import exactum"],
        check=False,
        timeout=WAIT_MAX_S,
        capture_output=True,
        env=environment(),
        cwd="/",
    )
    return tried.returncode == 0


def environment(**more: str) -> Mapping[str, str]:
    """This process's environment without what points to a Python or to exactum's sources."""
    own = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    return {**own, **more}
