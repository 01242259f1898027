"""The packages that exactum does not bring by itself: PySpark, and those of its extras.

PySpark is not among exactum's dependencies: platforms such as Databricks bring one of their own,
and an install must not replace it. What may not be there is looked for here without importing it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from importlib.machinery import ModuleSpec

PYSPARK_MIN, PYSPARK_BELOW = (4, 0), (4, 3)
"""As the extra ``exactum[spark]`` has them in pyproject.toml; a test compares them."""
NEEDED = ("confluent_kafka", "kafka", "numpy", "pyarrow", "pyspark")
EVERYWHERE = "On the driver and on every executor"
HERE = "In this environment"
_ASSIGNED = re.compile(r"^__version__\b[^=]*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_MINOR = re.compile(r"(\d+)\.(\d+)")


def not_installed(need: str, package: str, extra: str, where: str = EVERYWHERE) -> str:
    """What every error of a missing package says: ``need`` begins the sentence ("Metrics need"),
    ``extra`` is what brings it (empty: every install of exactum does), and ``where`` says where.
    """
    asked = f"'exactum[{extra}]'" if extra else "exactum"
    return (
        f"{need} the package {package}, which is not installed here. {where}: pip install {asked}."
    )


def pyspark_version() -> str:
    """The version of the PySpark that this process has imported or would import, without importing
    it; empty where its files do not say.

    A platform's PySpark may lie on the path alone, without metadata of an installed package.

    Raises:
        ModuleNotFoundError: there is none.
    """
    loaded = getattr(sys.modules.get("pyspark"), "__version__", None)
    if loaded is not None:
        return str(loaded)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    found = _ASSIGNED.search(_version_file(spec))
    return found[1] if found else ""


def _version_file(spec: ModuleSpec) -> str:
    """The text of ``pyspark/version.py``, also out of a zip; empty where it cannot be read."""
    path = os.path.join(os.path.dirname(spec.origin or ""), "version.py")
    read = getattr(spec.loader, "get_data", None)
    try:
        return bytes(read(path)).decode() if read else ""
    except OSError:
        return ""


def require_pyspark() -> None:
    """
    Raises:
        ImportError: PySpark is missing here, or of a version that exactum does not work with. The
            message says which, where, and what to do.
    """
    try:
        version = pyspark_version()
    except ModuleNotFoundError as error:
        raise ImportError(
            f"exactum needs PySpark {_range()}, and there is none in the Python at "
            f"{sys.executable}. On a laptop: pip install 'exactum[spark]'. On a platform with its "
            "own PySpark (Databricks, EMR), run this with the platform's Python. Nothing was "
            "started.",
            name=error.name,
        ) from None
    found = _MINOR.match(version)
    if found and not PYSPARK_MIN <= (int(found[1]), int(found[2])) < PYSPARK_BELOW:
        raise ImportError(
            f"exactum needs PySpark {_range()}, and the Python at {sys.executable} has PySpark "
            f"{version}. On a laptop: pip install 'exactum[spark]'. On a platform that brings its "
            "own PySpark, choose a runtime with such a Spark. Nothing was started.",
            name="pyspark",
        )


def in_the_way() -> str | None:
    """What to say of a file in the script's folder that has the name of a package which exactum
    needs, or of a module of Python's own; None where there is none.

    Python looks into that folder first. A first script about Kafka is soon called ``kafka.py``.
    """
    folder = os.path.abspath(sys.path[0] if sys.path else "")
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        return None
    for name in (*NEEDED, *sorted(sys.stdlib_module_names)):
        for path in (os.path.join(folder, f"{name}.py"), os.path.join(folder, name, "__init__.py")):
            if os.path.isfile(path):
                return (
                    f"{path} is imported instead of the package {name}, which exactum needs: "
                    "Python looks in the script's folder first. Give it another name."
                )
    return None


def _range() -> str:
    newest = (PYSPARK_BELOW[0], PYSPARK_BELOW[1] - 1)
    return " to ".join(".".join(map(str, each)) for each in (PYSPARK_MIN, newest))
