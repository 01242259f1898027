"""Quix Streams' own Python environment, made once: its confluent-kafka is not the one that exactum
needs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from exactum.java.jars import cache_folder

VERSION = "3.28.1"
SCRIPT = Path(__file__).with_name("quix_peer.py")


def command() -> list[str]:
    """The command that runs the peer, in its environment, which is made first where it is not
    there.
    """
    folder = (
        cache_folder() / f"quixstreams-{VERSION}-py{sys.version_info.major}{sys.version_info.minor}"
    )
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, clear=True, with_pip=True)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "-q",
        ]
        with tempfile.TemporaryFile() as output:
            if subprocess.run(
                [*pip, f"quixstreams=={VERSION}"], stdout=output, stderr=output, check=False
            ).returncode:
                output.seek(0)
                raise RuntimeError(
                    f"quixstreams could not be installed: {output.read().decode()[-4_000:]}"
                )
        done.touch()
    return [str(folder / "bin" / "python"), str(SCRIPT)]
