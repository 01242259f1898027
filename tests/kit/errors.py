"""What a test asserts of an error: its class, its code, and the facts in it (a name, a number, a
place), in their order. Not its words, which may be said better.

An error that has a code has it as its first fact: ``SettingRefused, "SQL_URL", "@", "%40"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from exactum.errors import CodedError, ExactumError

E = TypeVar("E", bound=BaseException)


@contextmanager
def raised(kind: type[E], *facts: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """As ``pytest.raises``."""
    with pytest.raises(kind) as caught:
        yield caught
    check_error(caught.value, kind, *facts)


def check_error(error: BaseException | None, kind: type[BaseException], *facts: object) -> None:
    """Of an error that was kept."""
    assert isinstance(error, kind), repr(error)
    if isinstance(error, CodedError):
        code, *facts = facts
        assert error.code == code, error
    check_facts(str(error), *facts)


def text_of(error: BaseException | None) -> str | None:
    """As Python prints it last: exactum's own with its class, which Spark's has within."""
    if error is None:
        return None
    own = isinstance(error, ExactumError)
    return f"{type(error).__module__}.{type(error).__name__}: {error}" if own else str(error)


def check_query_error(text: str | None, kind: type[BaseException], *facts: object) -> None:
    """Of a query that has ended, by the text of its error (``text_of``), which names ours."""
    if issubclass(kind, CodedError):
        code, *facts = facts
        check_facts(text, f"{kind.__name__}: [{code}] ", *facts)
    else:
        check_facts(text, f"{kind.__name__}: ", *facts)


def check_facts(text: str | None, *facts: object) -> None:
    """A number is a whole number."""
    parts = (
        re.escape(str(fact)) + (r"(?!\d)" if str(fact)[-1:].isdigit() else "") for fact in facts
    )
    assert re.search(".*?".join(parts), text or "", re.DOTALL), f"{facts} are not in: {text}"
