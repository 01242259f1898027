"""``exactum doctor`` as a program reads it: run by its command, with the sinks in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.kit.transactions.operator import invoke


@dataclass(frozen=True)
class Diagnosis:
    """The exit status, what was found as ``--json`` tells it, and all that was printed."""

    status: int
    findings: tuple[dict[str, str], ...]
    output: str

    def told(self, level: str) -> list[str]:
        """Area and text of what was found at that level."""
        return [
            f"{each['where']}: {each['what']}" for each in self.findings if each["level"] == level
        ]

    def all_is_well(self) -> bool:
        return not self.told("error") and not self.told("unknown") and self.status == 0

    def has(self, level: str, *texts: str) -> bool:
        """Whether something of that level has all these texts in it; it has a mend as well."""
        return any(
            each["level"] == level
            and all(text in f"{each['where']}: {each['what']}" for text in texts)
            for each in self.findings
        )


def diagnosed(*options: str, sinks: str = "", folder: Path | None = None) -> Diagnosis:
    """``sinks``: the text of a list of sinks, for a file in ``folder``."""
    given: list[str] = []
    if sinks:
        assert folder is not None
        file = folder / "my_sinks.py"
        file.write_text(f"import exactum\n\nSINKS = [{sinks}]\n")
        given = ["--sinks", f"{file}:SINKS"]
    result = invoke("doctor", "--json", *options, *given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if not result.stdout:
        return Diagnosis(result.exit_code, (), result.stderr)
    told = json.loads(result.stdout)
    assert told["status"] == result.exit_code
    return Diagnosis(result.exit_code, tuple(told["findings"]), result.output)


def tree(folder: Path) -> set[str]:
    """Every file and folder below it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
