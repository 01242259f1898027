"""The pages and what they name: links, pictures, code, command lines, extras. Nothing is run but
parsers and a type checker; what runs is in the files beside this one.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import exactum
from exactum.checkpoint import layout
from tests.kit.docs.code import blocks, fences
from tests.kit.docs.commands import NAMED, TEMPLATE, complaint, pages, typed_lines, unknown
from tests.kit.docs.steps import steps
from tests.kit.environment import ROOT
from tests.kit.packaging.metadata import extras, named_extras
from tests.kit.python import ran

DOCS = ROOT / "docs"
PAGES = [*pages(), *sorted((ROOT / "bench" / "results").glob("*.md"))]
WITH_CODE = [page for page in PAGES if blocks(page)]
NEEDS = {
    "Avro(": "avro",
    "Protobuf(": "protobuf",
    "registry=": "registry",
    "PostgresSink(": "postgres",
    "MySQLSink(": "mysql",
    "DeltaSink(": "delta",
    "IcebergSink(": "iceberg",
    "serve_metrics(": "metrics",
    "transformWithState(": "state",
    '"s3://': "objects",
}
"""What a program needs, by what is written in it."""
TYPES = ("attr-defined", "call-arg", "call-overload")
"""What the type checker says that is wrong of a program on a page, whatever its names stand for."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def tokens(page: Path) -> list[Token]:
    found: list[Token] = []
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text()):
        found += [token, *(token.children or [])]
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_of_a_page_leads_to_a_file(page: Path) -> None:
    """To one of the repository; ``make docs`` looks at anchors, and at the site that it makes."""
    links = [str(t.attrs.get("href") or t.attrs.get("src") or "") for t in tokens(page)]
    local = [link.partition("#")[0] for link in links if not link.startswith("http")]
    assert [link for link in local if link and not (page.parent / link).exists()] == []


def test_each_page_is_in_the_navigation_once() -> None:
    named = re.findall(r'= "([^"]+\.md)"', (ROOT / "zensical.toml").read_text())
    made = {"reference/command-line.md"}
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(there | made)


def test_each_public_name_is_in_the_reference() -> None:
    """By a directive of its own, or by that of its module."""
    text = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    names = {f"exactum.{name}" for name in exactum.__all__ if name != "__version__"}
    assert names <= set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def test_each_name_of_the_reference_is_there() -> None:
    """``make docs`` shows its docstring; a name that moved would end it, minutes later."""
    named = [
        name
        for page in (DOCS / "reference").glob("*.md")
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    ]
    assert named
    assert [name for name in named if not is_there(name)] == []


def is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, of_module = name.rpartition(".")
        return hasattr(importlib.import_module(module), of_module)
    return True


def test_each_page_that_a_message_or_a_docstring_names_is_there() -> None:
    """By path, or a decision record by the begin of its name."""
    named = {
        name
        for source in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+(?:\.md)?", source.read_text())
    }
    assert len(named) > 10
    assert [name for name in sorted(named) if not list(ROOT.glob(f"{name}*"))] == []


def test_each_picture_is_on_a_page_and_says_what_it_shows() -> None:
    shown = {
        (page.parent / str(token.attrs["src"])).resolve(): token.content
        for page in PAGES
        for token in tokens(page)
        if token.type == "image"
    }
    there = [path for path in (DOCS / "pictures").iterdir() if path.suffix != ".css"]
    assert sorted(shown) == sorted(there)
    assert [path.name for path, text in shown.items() if len(text.split()) < 4] == []
    by_hand = [path for path in there if path.suffix == ".svg" and path.name != "demo.svg"]
    assert [path.name for path in by_hand if "<title" not in path.read_text()] == []


def test_the_drawing_of_a_checkpoint_has_every_path_of_it() -> None:
    drawing = ElementTree.parse(DOCS / "pictures" / "checkpoint.svg")
    drawn = [text.text or "" for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    paths = {name: Path(path) for name, path in vars(layout).items() if name.isupper()}
    # One is only in an object store, and only until the first start; the other is part of a name.
    names = [p.name for name, p in paths.items() if name not in ("RESTORING", "OF_PARENT")]
    assert len(names) > 9
    assert [name for name in names if not any(text.startswith(name) for text in drawn)] == []


@pytest.mark.slow
def test_programs_on_pages_call_exactum_as_it_is(tmp_path: Path) -> None:
    """Names are there, and calls have the arguments that they may have; what is wrong in the last
    ones is seen.
    """
    wrong = [
        "exactum.exactly_twice(sink)",
        "from exactum.local import nothing",
        "exactum.KafkaSink('t', bootstrap_server='b')",
        "exactum.exactly_once(sink, dead_letter=sink)",
        "server = exactum.serve_metrics(port=0)\nserver.stop()",
        "query = (",
    ]
    found = faults(tmp_path, [*([code] for code in wrong), *(blocks(page) for page in WITH_CODE)])
    assert {text.partition(".py")[0] for text in found} == {f"page_{n}" for n in range(len(wrong))}


def faults(folder: Path, programs: list[list[str]]) -> list[str]:
    """What is wrong with the programs of each page, by its number."""
    found = []
    for number, page_blocks in enumerate(programs):
        file = folder / f"page_{number}.py"
        try:
            tree = ast.parse("import exactum\n" + "\n".join(page_blocks))
        except SyntaxError as error:
            found.append(f"{file.name}: {error}")
            continue
        file.write_text(ast.unparse(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "exactum":
                if not is_there(f"exactum.{node.attr}"):
                    found.append(f"{file.name}: there is no exactum.{node.attr}")
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"]
    command += sorted(folder.glob("*.py"))
    said = ran(command, status=None, cwd=ROOT, MYPYPATH=str(ROOT / "src"))
    assert said.returncode in (0, 1), said.stdout + said.stderr
    wrong = re.compile(rf"(page_\d+\.py.*)\[({'|'.join(TYPES)})\]$", re.M)
    found += [line for line, _ in wrong.findall(said.stdout)]
    return [line for line in found if "does not explicitly export" not in line]  # PySpark's own


def test_whole_programs_wait_for_their_query_and_share_no_checkpoint() -> None:
    """One that is saved and run as it stands would otherwise end before its first micro-batch, and
    who pastes one after the other would go on where the first one was.
    """
    programs = [code for page in sorted(DOCS.glob("*.md")) for code in blocks(page)]
    whole = [code for code in programs if "exactum.local_session(" in code]
    assert [code for code in whole if ".start(" in code and ".awaitTermination()" not in code] == []
    kept = [place for code in whole for place in re.findall(r'checkpoint=("/[^"]+")', code)]
    assert len(set(kept)) == len(kept) >= 6


def test_each_command_line_is_one_that_the_command_takes() -> None:
    lines = {
        f"{name_of(page)}: {line}": complaint(line)
        for page in pages()
        for line in typed_lines(page)
        if line.startswith("exactum ")
    }
    template = (TEMPLATE / "Makefile").read_text()
    for line in re.findall(r"^\t(exactum .*)$", re.sub(r"\$\(\w+\)", "1", template), re.M):
        lines[line] = complaint(line)
    assert len(lines) > 30
    assert {line: said for line, said in lines.items() if said} == {}


def test_each_command_in_a_sentence_is_there() -> None:
    """On pages, and in messages and docstrings."""
    files = [*pages(), *(ROOT / "src").rglob("*.py")]
    named = {
        f"{name_of(file)}: {line}": unknown(line)
        for file in files
        for line in NAMED.findall(re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.M | re.S))
    }
    assert len(named) > 100
    assert {line: said for line, said in named.items() if said} == {}


@pytest.mark.parametrize(
    "line", ["exactum fly", "exactum local", "exactum run job.py --wach", "exactum verify"]
)
def test_what_a_command_does_not_take_is_seen(line: str) -> None:
    assert complaint(line)
    assert complaint("exactum savepoint restore /b --checkpoint /c --as same && echo") is None
    assert unknown("exactum savepoint restor") and unknown("exactum run --wach")


def test_each_step_of_the_quick_start_says_what_one_should_see() -> None:
    """``make first-hour`` types them; each target of a project is among them."""
    found = list(steps(DOCS / "quickstart.md"))
    assert len(found) >= 8
    assert [step.commands for step in found if step.commands and not step.seen] == []
    typed = {c.split()[1] for step in found for c in step.commands if c.startswith("make ")}
    targets = set(re.findall(r"^([a-z]+):", (TEMPLATE / "Makefile").read_text(), re.M))
    assert typed == targets - {"help", "clean", "environment"}


def test_each_target_that_a_page_makes_is_in_a_makefile() -> None:
    text = (ROOT / "Makefile").read_text() + (TEMPLATE / "Makefile").read_text()
    targets = {n for line in re.findall(r"^([a-z.0-9 -]+):", text, re.M) for n in line.split()}
    named = {
        (name_of(page), target)
        for page in pages()
        for line in [*re.findall("`(make [^`]+)`", page.read_text()), *typed_lines(page)]
        for target in re.findall(r"^make ([a-z][\w.-]*)", line)
    }
    assert len(named) > 20
    assert {(page, target) for page, target in named if target not in targets} == set()


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_a_page_that_installs_something_installs_what_it_shows(page: Path) -> None:
    text = page.read_text()
    brought = named_extras(text)
    brought = set(extras()) if "all" in brought else brought
    whole = [text for kind, text in fences(page) if kind == "python" and "_session(" in text]
    code = "\n".join(whole)
    needed = {extra for sign, extra in NEEDS.items() if sign in code}
    assert not brought or needed <= brought


def test_each_extra_that_is_named_exists_and_each_is_named() -> None:
    """By messages and pages."""
    files = [*pages(), *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("requirements.txt")]
    named = {name_of(file): named_extras(file.read_text()) for file in files}
    unknown_extras = {file: found - set(extras()) for file, found in named.items()}
    assert {file: found for file, found in unknown_extras.items() if found} == {}
    assert set().union(*(named[name_of(page)] for page in pages())) == set(extras())
