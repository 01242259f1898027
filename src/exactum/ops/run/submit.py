"""``exactum run --submit``: spark-submit starts the script, in client mode.

    exactum run --starts--> spark-submit, a JVM --starts--> the script's Python

The JVM ends with the script's status, or with 128 and the number of the signal that ended it.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from exactum.errors import SettingRefused

SIGNALLED = 128
"""What a shell, and Spark, add to the number of the signal that ended a process."""


def submitted(submit: str, script: Path, arguments: Sequence[str]) -> tuple[str, ...]:
    """The command that runs the script: ``submit`` is spark-submit with its options.

    Raises:
        SettingRefused: it is no command, there is no such program, or it asks for cluster mode.
    """
    try:
        words = shlex.split(submit)
    except ValueError as error:
        raise _refused(f"{submit!r} is no command ({error}).") from error
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise _refused(
            f"there is no program {words[0] if words else ''!r}. Give the path of Spark's "
            'bin/spark-submit, as in: --submit "/opt/spark/bin/spark-submit --master yarn".'
        )
    if _asks_for_cluster_mode(words):
        raise _refused(
            f"{submit!r} puts the driver on another machine, where exactum run cannot keep it. "
            "Leave the deploy mode out: client mode is taken. docs/kubernetes.md has cluster mode."
        )
    if script.suffix != ".py":
        raise _refused(f"spark-submit takes {script} for a jar. Give it a name that ends in .py.")
    # In front of what spark-defaults.conf may say.
    return (program, *words[1:], "--deploy-mode", "client", str(script), *arguments)


def _asks_for_cluster_mode(words: Sequence[str]) -> bool:
    pairs = [f"{option}={value}" for option, value in pairwise(words)]
    asked = ("--deploy-mode=cluster", "spark.submit.deployMode=cluster")
    return any(word.endswith(asked) for word in (*words, *pairs))


def _refused(what: str) -> SettingRefused:
    return SettingRefused("COMMAND_ARGUMENT", f"--submit: {what} Nothing was started.")
