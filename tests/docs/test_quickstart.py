"""The documents are run, not only read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.broker
@pytest.mark.spark
def test_the_quick_start_runs_as_it_stands(tmp_path: Path) -> None:
    """Every Python block of docs/quickstart.md, one after another, in a process of its own,
    where pandas is missing.
    """
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/quickstart.md").read_text(), re.DOTALL
    )
    assert len(blocks) >= 6
    script = tmp_path / "quickstart.py"
    script.write_text("\n".join(["import sys", "sys.modules['pandas'] = None", *blocks]))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_every_link_between_the_documents_leads_somewhere() -> None:
    """Relative links of the README and of docs/ name files that exist."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
