"""Every line on a page that is typed into a shell works as it stands, as far as that can be seen
without running it. Those of exactum's own command: ``test_typed.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.docs.shell import complaint, lines
from tests.kit.docs.typed import pages
from tests.kit.environment import ROOT

TOUR = ROOT / "docs" / "tour.md"


def test_lines_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = {(page, line) for page in pages() for line in lines(page)}
    assert len(found) > 100
    wrong = {
        f"{page.relative_to(ROOT)}: {line}": said
        for page, line in sorted(found)
        if (said := complaint(line, page))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cp exactum-<version>.whl exactum.zip", "redirect"),
        ("echo 'a", "unexpected EOF"),
        ("fly away", "nobody has looked at what fly takes"),
        ("make tset", "make knows no tset"),
        ("make soak SED=7", "make knows no SED"),
        ('pip install "exactum[postgress]"', "no extra {'postgress'}"),
        ("pip instal exactum", "pip has no instal"),
        ("python examples/classic_jobs.py", "no program examples/classic_jobs.py"),
        ("python mine.py", "no program mine.py"),
        ("python examples/classic_job.py --topic a", "--bootstrap-servers"),
        ("python -m nothing", "no module nothing"),
        ("python -m model tla --only", "expected one argument"),
        ("python -m chaos --sed 7", "unrecognized arguments: --sed 7"),
        ("pytest -s test_job.py", "no file ['test_job.py']"),
        ("kafka-consumer-groups.sh --describe --group a", "[bootstrap-server]"),
    ],
)
def test_what_is_wrong_is_seen(line: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert said in (complaint(line, TOUR) or "")


def test_where_lines_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Type `make test` or `python a.py`, not `SELECT 1`.\n"
        "```\nmake a  # b\nexactum run\npython b.py \\\n  --c\n```\n"
        "```text\nmake c\n```\n```python\nd\n```\n"
    )
    assert list(lines(page)) == ["make a  # b", "python b.py    --c", "make test", "python a.py"]
