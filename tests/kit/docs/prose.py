"""The rules of prose for the pages that people read, and how readable each page is.

``python -m tests.kit.docs.prose`` prints both for every page.

No linter for prose could be had: vale's package fetches a program from elsewhere when it first runs.

Rules: a sentence has at most ``SENTENCE_WORDS_MAX`` words, a cell of a table at most
``CELL_WORDS_MAX``, no word of ``INSTEAD`` is used, and "epoch" is explained where it is first used.
A link counts as its text, a piece of code as one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.environment import ROOT

SENTENCE_WORDS_MAX = 30
CELL_WORDS_MAX = 14
INSTEAD = {
    "anew": "again; for a topic or a table: recreated",
    "at hand": "current",
    "committable": "prepared transaction (glossary)",
    "for ever": "forever, or a bound",
    "generation": "incarnation (glossary)",
    "in vain": "without success",
    "lest": "so that ... not",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
    "of ours": "exactum's",
    "of yours": "your",
    "pre-commit": "prepare (glossary)",
    "thereof": "its",
    "utilize": "use",
    "whence": "where it came from",
    "whereupon": "then",
    "whoever": "say who",
}
"""Words that readers stumble over, and words with another one in docs/glossary.md."""
EXPLAINED = re.compile(r"micro-batch", re.I)
EPOCH = re.compile(r"\bepochs?\b(?!=)", re.I)
NEAR = 120
"""Characters around the first "epoch" of a page in which "micro-batch" has to stand."""
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"”*]*\s+(?=[A-Z`\"“\[(*0-9]|exactum\b)")
MARKUP = re.compile(r"^(>\s*)+(\[!\w+\])?|^\s*([-*]|\d+\.)\s+|^#+ .*", re.M)
MADE = re.compile(r"<!-- (?:results|[^>]*\bmade\b)[^>]*-->.*?<!-- end[^>]*-->", re.S)
"""Tables that a program has made."""
BLOCK_START = re.compile(r"^\s*(?:[-*]|\d+\.)\s|^#|^\|")


@dataclass
class Prose:
    """What a page says, without its code: sentences, and cells of tables."""

    sentences: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)

    @staticmethod
    def of(text: str) -> Prose:
        """Read Markdown."""
        prose = Prose()
        for block in _blocks(text):
            if block.startswith("|"):
                cells = re.split(r"(?<!\\)\|", block.strip().strip("|"))
                prose.cells += [cell.strip() for cell in cells if not re.fullmatch(r"[ :-]*", cell)]
            elif plain := MARKUP.sub("", block).strip():
                prose.sentences += SENTENCE_END.split(plain)
        return prose

    @property
    def words_each(self) -> float:
        """Words in a sentence, on average."""
        return sum(map(count, self.sentences)) / max(1, len(self.sentences))

    @property
    def ease(self) -> float:
        """Flesch's reading ease of sentences and cells: 60 and more is plain English, below 30 is
        for scholars.
        """
        texts = [*self.sentences, *self.cells]
        words = [w for text in texts for w in re.findall(r"[a-z]+", text.lower()) if len(w) > 1]
        syllables = sum(max(1, len(re.findall(r"[aeiouy]+", _silent(word)))) for word in words)
        return (
            206.835
            - 1.015 * len(words) / max(1, len(texts))
            - 84.6 * syllables / max(1, len(words))
        )


def _silent(word: str) -> str:
    return re.sub(r"(?<=[a-z]{2})(?:e|es|ed)$", "", word)


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and rows of tables, each on one line; links are their texts."""
    text = re.sub(MADE, "", text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^( *)```.*?^\1```", "\n", text, flags=re.S | re.M)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"``?[^`\n]+``?", lambda code: "`code`" if " " in code[0] else code[0], text)
    text = re.sub(r"^:::.*(\n    .*)*", "", text, flags=re.M)
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        bare = re.sub(r"^(>\s?)+", "", line)
        if lines and (not bare.strip() or BLOCK_START.match(bare)):
            yield " ".join(lines)
            lines = []
        if bare.strip() and not bare.startswith("[!"):
            lines.append(bare if not lines else bare.strip())


def count(text: str) -> int:
    """Words; what has neither a letter nor a digit is none."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def offences(text: str, explains_words: bool = False) -> list[str]:
    """Each place of a page that breaks a rule, with the rule. A page that explains words may use
    all of them.
    """
    prose = Prose.of(text)
    found = [
        f"a sentence of {count(s)} words: {s}"
        for s in prose.sentences
        if count(s) > SENTENCE_WORDS_MAX
    ]
    found += [f"a cell of {count(c)} words: {c}" for c in prose.cells if count(c) > CELL_WORDS_MAX]
    said = [*prose.sentences, *prose.cells]
    found += [
        f"{word!r}, better: {better}: {place}"
        for word, better in ({} if explains_words else INSTEAD).items()
        for place in said
        if re.search(rf"\b{re.escape(word)}\b", re.sub(r"`[^`]*`", "", place), re.I)
    ]
    everything = re.sub(r"`[^`]*`", "", " ".join(prose.sentences))
    if first := EPOCH.search(everything):
        near = everything[max(0, first.start() - NEAR) : first.end() + NEAR]
        if not EXPLAINED.search(near):
            found.append(f"'epoch' without 'micro-batch' near it: {near}")
    return found


def offences_of(page: Path) -> list[str]:
    """Those of a file."""
    return offences(page.read_text(), explains_words=page.name == "glossary.md")


def pages() -> list[Path]:
    """Those that people read from end to end: no decision records, nothing that a program wrote."""
    docs = ROOT / "docs"
    found = [p for p in sorted(docs.rglob("*.md")) if p.parent.name != "adr" or p.stem == "index"]
    made = {docs / "reference" / "command-line.md"}
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(p for p in found if p not in made)]


def main() -> None:
    """A line for each page, the worst first."""
    rows = []
    for page in pages():
        prose = Prose.of(page.read_text())
        worst = max(map(count, prose.cells), default=0)
        rows.append(
            (len(offences_of(page)), page.relative_to(ROOT), prose.words_each, prose.ease, worst)
        )
    for broken, name, words, ease, worst in sorted(rows, reverse=True):
        print(f"{name!s:32} offences {broken:3}  words a sentence {words:4.1f}  "
              f"reading ease {ease:4.0f}  longest cell {worst:3}")  # fmt: skip


if __name__ == "__main__":
    main()
