"""What a person sees while the demo runs: a live table on a terminal, plain lines in a pipe."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from exactum.monitor.words import duration

PLAIN_INTERVAL_S = 2.0
LIVE_REFRESHES_PER_SECOND = 4
PICTURE_COLUMNS = 110
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich's pictures fetch their font from the internet: the reader's own will do."""


@dataclass(frozen=True)
class QueryNumbers:
    """One query's numbers at a moment. ``way`` is what keeps it running; ``open_transactions`` is
    None for a sink without transactions.
    """

    name: str
    way: str
    state: str
    committed: int
    duplicates: int
    missing: int
    open_transactions: int | None
    batches: int
    kills: int = 0
    recoveries_s: Sequence[float] = ()

    @property
    def finished(self) -> bool:
        """Whether the driver works and everything that was produced so far has been seen."""
        return self.state == "working" and self.missing == 0


@dataclass(frozen=True)
class DemoNumbers:
    """All numbers at a moment."""

    phase: str
    produced: int
    queries: Sequence[QueryNumbers] = ()


class Screen:
    """Shows ``numbers()`` again and again while it is entered, and lines by ``say``, which
    threads may call.
    """

    def __init__(self, numbers: Callable[[], DemoNumbers], console: Console | None = None) -> None:
        self._numbers = numbers
        self._console = console or Console(highlight=False)
        self._began = time.monotonic()
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._printed_s = 0.0
        self._shown: list[RenderableType] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Screen:
        if self._is_live:
            self._live = Live(
                console=self._console,
                get_renderable=self._table,
                refresh_per_second=LIVE_REFRESHES_PER_SECOND,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        self._shown.append(self._table())

    @property
    def seconds(self) -> float:
        """Since the screen was made."""
        return time.monotonic() - self._began

    def say(self, text: str, style: str = "") -> None:
        """Print one line with the time before it."""
        line = Text(f"{self._clock()} {text}", style)
        self._shown.append(line)
        self._print(line)

    def _print(self, line: Text) -> None:
        with self._lock:
            self._console.print(
                line, soft_wrap=not self._is_live
            )  # a line of a pipe stays one line
            self._console.file.flush()

    def tick(self) -> None:
        """In a pipe: print the numbers (before there are any: the phase), at most every two
        seconds.
        """
        if self._is_live or self.seconds - self._printed_s < PLAIN_INTERVAL_S:
            return
        self._printed_s = self.seconds
        now = self._numbers()
        line = " | ".join([f"produced {now.produced:,}", *(_line(query) for query in now.queries)])
        self._print(Text(f"{self._clock()} {line if now.produced else f'{now.phase} ...'}"))

    def picture(self) -> str:
        """What was said so far, as SVG, with the table as it was when the screen was left."""
        paper = Console(
            record=True,
            width=PICTURE_COLUMNS,
            file=io.StringIO(),
            force_terminal=True,
            highlight=False,
        )
        for each in self._shown:
            paper.print(each)
        return FONTS.sub("", paper.export_svg(title="make demo", unique_id="demo"))

    def _clock(self) -> str:
        return f"[{self.seconds:3.0f} s]"

    def _table(self) -> Table:
        now = self._numbers()
        table = Table(
            title=f"{self._clock()} {now.phase}",
            title_justify="left",
            title_style="bold",
            min_width=60,
        )
        table.add_column("")
        for query in now.queries:
            table.add_column(query.name, justify="right", min_width=18)
        queries = now.queries
        rows: list[tuple[str, list[Text]]] = [
            (
                "driver",
                [Text(q.state, "green" if q.state == "working" else "yellow") for q in queries],
            ),
            ("SIGKILLs", [_number(q.kills) for q in queries]),
            ("kept running by", [Text(q.way) for q in queries]),
            (
                "worked again after",
                [Text(", ".join(map(duration, q.recoveries_s)) or "-") for q in queries],
            ),
            ("produced", [_number(now.produced) for _ in queries]),
            ("committed, as a reader sees it", [_number(q.committed) for q in queries]),
            ("duplicates", [_number(q.duplicates, "bold red") for q in queries]),
            ("missing so far (in flight)", [_number(q.missing) for q in queries]),
            ("transactions open", [_number(q.open_transactions) for q in queries]),
            ("micro-batches", [_number(q.batches) for q in queries]),
        ]
        for label, cells in rows:
            table.add_row(label, *cells)
        return table


def _number(value: int | None, style: str = "") -> Text:
    return Text("-" if value is None else f"{value:,}", style if value else "")


def _line(query: QueryNumbers) -> str:
    transactions = "" if query.open_transactions is None else f"open {query.open_transactions}, "
    return (
        f"{query.name}: committed {query.committed:,}, duplicates {query.duplicates:,}, in flight "
        f"{query.missing:,}, {transactions}micro-batches {query.batches:,}, SIGKILLs {query.kills}"
    )
