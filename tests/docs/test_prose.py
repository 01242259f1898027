"""The pages keep to the rules of prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.docs.prose import SENTENCE_WORDS_MAX, Prose, offences, offences_of, pages
from tests.kit.environment import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_keeps_to_the_rules(page: Path) -> None:
    assert offences_of(page) == []


def test_what_breaks_a_rule_is_seen() -> None:
    long = "A " + "very " * SENTENCE_WORDS_MAX + "long sentence."
    for text in (
        long,
        f"- Short.\n- {long}",
        f"> [!NOTE]\n> {long}",
        f"| a | b |\n|---|---|\n| {'word ' * 15}| c |",
        "Whoever comes is a zombie.",
        "An epoch is decided once.",
    ):
        assert offences(text), text


def test_what_keeps_to_them_is_left_alone() -> None:
    text = """
# A heading that is as long as a heading likes to be and has many words in it, for it is no sentence at all

An epoch is one micro-batch. A [link with a text](https://example.org/a/very/long/address) is its text.

```
whoever writes code may write what they like
```

- One item without a full stop
- Another one; `code with many words in it` is one word

| a | b |
|---|---|
| fourteen words are as many as a cell may have, and no more | x |
"""
    assert offences(text) == []
    assert len(Prose.of(text).sentences) == 4
