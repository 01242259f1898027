"""What the project has written down about its own code, and the linters cannot see."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.environment import ROOT

LINES_MAX = 600
SOURCES = sorted((ROOT / "src" / "exactum").rglob("*.py"))
TEXTS = {
    path.relative_to(ROOT / "src" / "exactum").as_posix(): path.read_text() for path in SOURCES
}
PUBLIC_MODULES = ("exactum", "exactum.local", "exactum.testing", "exactum.errors", "exactum.events")


@pytest.mark.parametrize("folder", ["src", "bench", "chaos", "examples", "model", "tests"])
def test_files_are_short(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    long = {str(p.relative_to(ROOT)): n for p in files if (n := lines(p)) > LINES_MAX}
    assert files
    assert not long, f"over {LINES_MAX} lines: cut them along their nouns"


def test_one_file_makes_durable() -> None:
    """What is fsynced, and in which order, is said in ``exactum.durable``."""
    found = [name for name, text in TEXTS.items() if re.search(r"os\.f(data)?sync\b", text)]
    assert found == ["durable.py"]


@pytest.mark.parametrize(
    ("call", "file"),
    [
        (r"\bopen_log\(", "monitor/decisions.py"),
        (r"\bQueryStats\(\"|\brefuse_retired\(", "monitor/job.py"),
        (r"\bJudgement\(", "monitor/verdict.py"),
        (r"\bHistoryReader\(|\bsegments\(", "monitor/job_history.py"),
        (r"\bsentence_of\(", "monitor/job_history.py"),
    ],
)
def test_a_query_is_read_and_judged_in_one_place(call: str, file: str) -> None:
    """Who shows, measures or probes it takes that state and that verdict."""
    rooms = (
        *("monitor/", "ops/status", "ops/dashboard/", "ops/run/", "ops/verify"),
        "ops/transactions/state",
    )
    found = {
        name
        for name, text in TEXTS.items()
        if name.startswith(rooms) and re.search(call, re.sub(r"(def|class) \w+\(", "", text))
    }
    assert found - {"monitor/history.py"} == {file}  # which is the writer


def test_threads_have_names() -> None:
    """Whoever looks at a process that hangs sees whose each thread is."""
    bare = [
        f"{name}:{node.lineno}"
        for name, text in TEXTS.items()
        if "Thread" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and not named(node)
    ]
    assert bare == []


def named(call: ast.Call) -> bool:
    """Whether a call that makes a thread gives it a name; True of every other call."""
    made = ast.unparse(call.func).rpartition(".")[2]
    given = {keyword.arg for keyword in call.keywords}
    if made == "ThreadPoolExecutor":
        return len(call.args) > 1 or "thread_name_prefix" in given
    return made != "Thread" or "name" in given


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def test_no_two_public_classes_share_a_name() -> None:
    found = defaultdict(list)
    for name, text in TEXTS.items():
        for kind in re.findall(r"^class ([^\W_]\w*)", text, re.MULTILINE):
            found[kind].append(name)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


PRIVATE_OF_SPARK = re.compile(r"_j(vm|df|sc|c|rdd|sparkSession|[a-z]*Session)?|_gateway.*")
"""What PySpark's objects carry of the JVM's."""
PERHAPS_PRIVATE = re.compile(r"\._j|\._gateway|\bpy4j")
"""Of what has none of these no tree is made."""


def test_one_room_reaches_into_the_jvm() -> None:
    """Spark's private parts are reached by ``spark/jvm/`` alone, so that a new Spark is one room's
    matter.
    """
    found = [
        f"{name}:{place}"
        for name, text in TEXTS.items()
        if not name.startswith("spark/jvm/")
        for place in private_parts(text)
    ]
    assert found == []


def private_parts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)) if PERHAPS_PRIVATE.search(source) else ():
        if isinstance(node, ast.Attribute) and PRIVATE_OF_SPARK.fullmatch(node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not own:
                yield f"{node.lineno}: {node.attr}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("py4j"):
            yield f"{node.lineno}: {node.module}"
        if isinstance(node, ast.Import) and any(n.name.startswith("py4j") for n in node.names):
            yield f"{node.lineno}: py4j"


@pytest.mark.parametrize(
    "source", ["frame._jdf", "spark.sparkContext._jvm.java", "from py4j.protocol import X"]
)
def test_who_reaches_in_is_seen(source: str) -> None:
    assert list(private_parts(source))


DOTTED = re.compile(r"(?<!\w)_jvm\b|(?<!\w)jvm\.(?:java|org|com|scala)\b|\bis_instance_of\b")
"""A class of Java's is named whole: see ``exactum.spark.jvm.java_class`` for what dots cost."""


def dotted(source: str) -> list[str]:
    return [
        line.strip()
        for line in source.splitlines()
        if DOTTED.search(line) and not line.lstrip().startswith(("#", "``"))
    ]


def test_no_class_of_java_is_looked_for_part_by_part() -> None:
    assert {name: found for name, text in TEXTS.items() if (found := dotted(text))} == {}
    assert len(dotted("uuid = session.sparkContext._jvm.java.util.UUID\njvm.scala.Option\n")) == 2


TABLES = {"spark/open_queries.py: open_queries", "spark/supervised/process.py: _supervision"}
CHANGES = {
    *("dict", "list", "set", "deque", "Counter", "defaultdict", "local", "Queue", "SimpleQueue"),
    *("Lock", "RLock", "Condition", "Event", "Semaphore"),
    *("WeakSet", "WeakKeyDictionary", "WeakValueDictionary"),
}
"""What is no constant, whatever its name says."""
PLAIN = {"compile", "getLogger", "frozenset", "tuple"}
CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def states_of(source: str) -> Iterator[str]:
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        elif isinstance(statement, ast.FunctionDef):
            if any("cache" in ast.unparse(each) for each in statement.decorator_list):
                yield statement.name
            continue
        else:
            continue
        name, value = ast.unparse(target), statement.value
        if isinstance(value, CONTAINERS) and not name.isupper() and name != "__all__":
            yield name
        if isinstance(value, ast.Call):
            called = ast.unparse(value.func).rpartition(".")[2]
            if called in CHANGES or not (name.isupper() or called in PLAIN):
                yield name


def test_the_tables_of_the_process_are_two() -> None:
    """In the rooms that run queries: the table of open queries, and the channel to the supervisor. All
    else belongs to a run, a task or a session.
    """
    rooms = {name: text for name, text in TEXTS.items() if name.startswith("spark/")}
    found = {f"{name}: {state}" for name, text in rooms.items() for state in states_of(text)}
    assert found == TABLES


def test_a_table_is_found() -> None:
    """However it is written."""
    module = (
        "import threading, weakref, functools\n_by_id: dict[str, int] = {}\n_seen = set()\n"
        "_lock = threading.Lock()\nALIVE = weakref.WeakSet()\nrunning = Running()\nMAX = {1: 2}\n"
        "@functools.cache\ndef of(name): ...\n"
    )
    assert [*states_of(module)] == ["_by_id", "_seen", "_lock", "ALIVE", "running", "of"]


def public() -> Iterator[tuple[str, object]]:
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None) or [
            n for n, value in vars(module).items() if getattr(value, "__module__", "") == name
        ]
        for each in names:
            if not each.startswith("_") and not inspect.ismodule(getattr(module, each)):
                yield f"{name}.{each}", getattr(module, each)


def methods(owner: type) -> Iterator[tuple[str, object]]:
    for name, value in inspect.getmembers(owner):
        own = getattr(value, "__module__", "") or ""
        if not name.startswith("_") and callable(value) and own.startswith("exactum"):
            yield name, value


def test_public_names_are_documented() -> None:
    """Every class, function and method; what is inherited counts."""
    bare = []
    for name, value in public():
        if callable(value) and not inspect.getdoc(value):
            bare.append(name)
        if inspect.isclass(value):
            bare += [f"{name}.{m}" for m, method in methods(value) if not inspect.getdoc(method)]
    assert bare == []


def test_public_parameters_are_documented() -> None:
    """Each by its name, in the docstring of the function or of its class. Fields of events are said
    in ``exactum.events`` once for all.
    """
    silent = []
    for name, value in public():
        if name.startswith(("exactum.events.", "exactum.testing.", "exactum.errors.")):
            continue
        if not callable(value) or (inspect.isclass(value) and issubclass(value, Exception)):
            continue
        text = f"{inspect.getdoc(value)} {inspect.getdoc(getattr(value, '__init__', None)) or ''}"
        try:
            parameters = inspect.signature(value).parameters
        except ValueError:
            continue
        silent += [
            f"{name}({p})"
            for p in parameters
            if p not in ("self", "args", "kwargs") and not re.search(rf"\b{p}\b", text)
        ]
    assert silent == []
