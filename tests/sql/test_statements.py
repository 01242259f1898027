"""The statements in ``.sql`` files: all of them are used, described, and granted by the
documentation.
"""

from __future__ import annotations

import ast
import re
import zipfile
from pathlib import Path

import pytest

import exactum.sql
from tests.kit.python import python

SQL = Path(exactum.sql.__file__).parent
SHARED = SQL / "statements.sql"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "rights.md"
STATEMENT = re.compile(r"^-- name: (\w+)\n((?:--.*\n)+)((?!--).+\n)+", re.MULTILINE)
TABLES = {
    "ledger": "exactum_ledger",
    "decisions": "exactum_decisions",
    "logs": "exactum_decision_logs",
}
"""What the files call a table, and what the documentation calls it."""


def statements(path: Path) -> dict[str, str]:
    """The comment of each statement, by its name."""
    text = path.read_text()
    found = {match[1]: match[2] for match in STATEMENT.finditer(text)}
    assert len(found) == text.count("-- name: "), f"{path}: a statement without a comment or a text"
    return found


@pytest.mark.parametrize(
    "path", sorted(SQL.rglob("*.sql")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_every_statement_is_described(path: Path) -> None:
    """By what it is for, and by what it needs."""
    for name, comment in statements(path).items():
        *purpose, needs = comment.splitlines()
        assert purpose and needs.startswith("-- needs: "), name


def test_every_statement_is_used() -> None:
    """And every one that the code asks for is there, for each dialect."""
    texts: set[str] = set()
    asked: set[str] = set()
    for path in SQL.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in ("sql", "_sql"):
                    asked.add(node.args[0].value)
    known: set[str] = set()
    for dialect in ("postgres", "mysql"):
        names: list[str] = []
        for path in (*SQL.glob("*.sql"), *(SQL / dialect).glob("*.sql")):
            names += statements(path)
        assert len(names) == len(set(names)), f"{dialect}: two statements of one name"
        known |= set(names)
    assert known <= texts, known - texts
    assert asked <= known, asked - known


def test_the_sources_that_the_files_name_are_there() -> None:
    """An administrator looks there for the statements that are made of columns."""
    for path in SQL.rglob("*.sql"):
        for name in re.findall(r"[\w/]+\.py", path.read_text()):
            assert (SQL.parent / name).exists(), f"{path}: {name}"


@pytest.mark.parametrize(("dialect", "column"), [("postgres", 1), ("mysql", 2)])
def test_the_documentation_grants_what_the_statements_need(dialect: str, column: int) -> None:
    """No more and no less, for each of exactum's tables."""
    needed: dict[str, set[str]] = {table: set() for table in TABLES}
    for path in (SHARED, SQL / dialect / "statements.sql"):
        for comment in statements(path).values():
            needs = re.search(r"-- needs: (.*) on the ([a-z ]+)", comment)
            if needs is not None and needs[2] in TABLES:
                needed[needs[2]] |= set(re.split(r", | and | or ", needs[1]))
    rows = [
        line.split("|")[1:-1] for line in DOCUMENT.read_text().splitlines() if line[:3] == "| `"
    ]
    granted = {
        row[0].strip(" `"): set(re.findall("`([A-Z ]+)`", row[column]))
        for row in rows
        if len(row) == 3
    }
    assert {TABLES[table]: rights for table, rights in needed.items()} == {
        table: granted[table] for table in TABLES.values()
    }


def test_they_are_found_in_a_zip_file(tmp_path: Path) -> None:
    """Spark's --py-files ships exactum as one file, which nobody unpacks."""
    packed = tmp_path / "exactum.zip"
    with zipfile.ZipFile(packed, "w") as file:
        for path in SQL.parent.rglob("*"):
            if path.suffix in (".py", ".sql"):
                file.write(path, path.relative_to(SQL.parents[1]))
    code = (
        f"import sys; sys.path.insert(0, {str(packed)!r}); import exactum.sql.statements as s; "
        "from exactum.sql.mysql.session import sql; print(s.__file__, sql('drop_temporary_table'))"
    )
    assert python(code).stdout.split() == [
        f"{packed}/exactum/sql/statements.py",
        "DROP",
        "TEMPORARY",
        "TABLE",
        "IF",
        "EXISTS",
        "`exactum_loaded`",
    ]
