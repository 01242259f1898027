"""A class of Java's is named whole: see ``exactum.spark.jvm.java_class`` for what dots cost."""

from __future__ import annotations

import re
from pathlib import Path

import exactum

DOTTED = re.compile(r"(?<!\w)_jvm\b|(?<!\w)jvm\.(?:java|org|com|scala)\b|\bis_instance_of\b")


def dotted(source: Path) -> list[str]:
    return [
        f"{source.name}:{number}: {line.strip()}"
        for number, line in enumerate(source.read_text().splitlines(), start=1)
        if DOTTED.search(line) and not line.lstrip().startswith(("#", "``"))
    ]


def test_no_class_is_looked_for_part_by_part() -> None:
    found = [
        line
        for source in sorted(Path(exactum.__file__).parent.rglob("*.py"))
        for line in dotted(source)
    ]
    assert found == []


def test_it_would_be_found(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("uuid = session.sparkContext._jvm.java.util.UUID\njvm.scala.Option\n")
    assert len(dotted(source)) == 2
