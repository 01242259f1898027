"""State that belongs to the process, in the rooms that run queries: the table of open queries, and
the channel to the supervisor. All else belongs to a run, a task or a session.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SPARK = Path(__file__).parents[2] / "src" / "exactum" / "spark"
TABLES = {"open_queries.py: open_queries", "supervised/process.py: _supervision"}
CHANGES = {
    *("dict", "list", "set", "deque", "Counter", "defaultdict", "local", "Queue", "SimpleQueue"),
    *("Lock", "RLock", "Condition", "Event", "Semaphore"),
    *("WeakSet", "WeakKeyDictionary", "WeakValueDictionary"),
}
"""What is no constant, whatever its name says."""
PLAIN = {"compile", "getLogger", "frozenset", "tuple"}
CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def states_of(path: Path) -> Iterator[str]:
    for statement in ast.parse(path.read_text()).body:
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
    found = {
        f"{path.relative_to(SPARK)}: {name}"
        for path in SPARK.rglob("*.py")
        for name in states_of(path)
    }
    assert found == TABLES


def test_a_table_is_found(tmp_path: Path) -> None:
    """However it is written."""
    module = tmp_path / "module.py"
    module.write_text(
        "import threading, weakref, functools\n_by_id: dict[str, int] = {}\n_seen = set()\n"
        "_lock = threading.Lock()\nALIVE = weakref.WeakSet()\nrunning = Running()\nMAX = {1: 2}\n"
        "@functools.cache\ndef of(name): ...\n"
    )
    assert [*states_of(module)] == ["_by_id", "_seen", "_lock", "ALIVE", "running", "of"]
