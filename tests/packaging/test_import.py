"""``import exactum``: what it loads, and what it says where PySpark is missing or another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from exactum import packages
from tests.kit.environment import ROOT, python_path
from tests.kit.packaging.metadata import extras
from tests.kit.python import python, ran

WITHOUT = "import sys; sys.modules['pyspark'] = None; "


def run(code: str, *path: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    where = os.pathsep.join([*map(str, path), python_path()])
    return python(code, status=status, PYTHONPATH=where)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def test_the_import_loads_no_package_and_has_no_effect() -> None:
    """Counted in modules and threads: an executor pays for each import, and a clock tells less."""
    done = run(
        "import sys, threading; before = set(sys.modules); import exactum; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)), threading.active_count(), "
        "sorted(m for m in sys.modules if m.startswith('exactum.')))"
    )
    assert done.stdout.strip() == "['exactum'] 1 ['exactum._version', 'exactum.packages']"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "code",
    ["import exactum", "from exactum import errors", "import exactum as e, exactum.errors"],
)
def test_without_pyspark_every_import_says_what_to_install(code: str) -> None:
    done = run(WITHOUT + code, status=1)
    assert re.fullmatch(
        r"ImportError: exactum needs PySpark 4\.0 to 4\.2, and there is none in the Python at \S+\. "
        r".*pip install 'exactum\[spark\]'.*Nothing was started\.",
        last_line(done),
    )
    assert "During handling" not in done.stderr


@pytest.mark.parametrize("name", ["kafka.py", "kafka/__init__.py", "pyspark.py", "queue.py"])
def test_a_file_in_the_way_of_a_package_is_named(name: str, tmp_path: Path) -> None:
    """The script itself, or one beside it."""
    script = tmp_path / ("app.py" if "/" in name else name)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    script.write_text("import exactum\nexactum.KafkaSink\nexactum.exactly_once\n")
    done = ran([sys.executable, script], status=1)
    package = name.removesuffix("/__init__.py").removesuffix(".py")
    assert last_line(done) == (
        f"ImportError: {tmp_path / name} is imported instead of the package {package}, which "
        "exactum needs: Python looks in the script's folder first. Give it another name."
    )
    assert "During handling" not in done.stderr


def test_parts_that_need_no_pyspark_are_there_without() -> None:
    """The command on an operator's machine, too; a name that needs PySpark says so when it is
    used.
    """
    parts = "errors, exactum.events, exactum.protocol.coordinator, exactum.testing, exactum.ops.cli"
    done = run(
        WITHOUT + f"import exactum.{parts}\n"
        "print(exactum.KafkaSink.__name__, exactum.PostgresSink.__name__)\n"
        "exactum.read_kafka",
        status=1,
    )
    assert done.stdout == "KafkaSink PostgresSink\n"
    assert last_line(done).startswith("ImportError: exactum needs PySpark 4.0 to 4.2")


def platform(folder: Path, text: str, *, zipped: bool) -> Path:
    """A path with a ``pyspark`` as platforms have it: no metadata; ``text`` is its version.py."""
    files = {"pyspark/__init__.py": "raise SystemExit('imported')", "pyspark/version.py": text}
    if zipped:
        with zipfile.ZipFile(folder / "pyspark.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return folder / "pyspark.zip"
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize("version", ["3.5.6", "4.3.0", "4.3.0.dev1"])
@pytest.mark.parametrize("zipped", [False, True])
def test_an_unsupported_pyspark_is_refused_by_its_version(
    tmp_path: Path, version: str, zipped: bool
) -> None:
    """It is not imported for that."""
    path = platform(tmp_path, f"__version__: str = '{version}'", zipped=zipped)
    done = run("import exactum", path, status=1)
    assert f" has PySpark {version}. " in last_line(done)
    assert "pip install 'exactum[spark]'" in last_line(done)


@pytest.mark.parametrize(
    "text", ["__version__ = '4.0.0'", "__version__: str = '4.2.1.dev0'", "# says nothing"]
)
def test_a_platforms_own_pyspark_is_taken(tmp_path: Path, text: str) -> None:
    """Also where its files do not tell a version: Spark itself will."""
    done = run("import exactum; print(exactum.__version__)", platform(tmp_path, text, zipped=False))
    assert done.stderr == ""


def test_the_bounds_are_those_of_the_extra() -> None:
    low, below = (".".join(map(str, b)) for b in (packages.PYSPARK_MIN, packages.PYSPARK_BELOW))
    assert extras()["spark"] == [f"pyspark>={low},<{below}"]


def test_every_extra_that_a_message_tells_to_install_exists() -> None:
    """As ``not_installed`` is called; what pages and texts name is in tests/docs."""
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    call = re.compile(r"not_installed\(\s*[^()]*?\"(\w+)\"(?:, HERE)?\s*\)")
    named = {extra for source in sources for extra in call.findall(source)}
    assert {"spark", "objects", "metrics"} <= named <= set(extras())
