"""What a person sees of ``exactum run``: lines with the time before them; with ``--watch`` the
queries' numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from typing import IO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from exactum.monitor.query_stats import QueryStats
from exactum.monitor.script_stats import ScriptStats
from exactum.ops.run.output import STDERR, STDOUT
from exactum.ops.run.printer import ErrorStream, Printer

PLAIN_EVERY_S = 5.0
REFRESH_EVERY_S = 0.25
WIDE = 1_000
"""A width at which a table need not shrink."""


class RunDisplay:
    """Entered while the supervisor works. ``watch``: a live table on a terminal, lines now and then
    in a pipe.

    ``captures``: the streams of the script that would draw over the table, and whose lines
    ``pass_on`` takes instead. Nothing here waits for whoever reads.
    """

    def __init__(self, stats: ScriptStats, *, watch: bool, console: Console | None = None) -> None:
        self._stats = stats
        stream = ErrorStream()
        self._printer = Printer(lambda: stream.written_bytes, self._print_missed)
        self._console = console or Console(file=cast("IO[str]", stream), highlight=False)
        self._watch = watch
        self.is_live = watch and self._console.is_terminal and not self._console.is_dumb_terminal
        self.captures: Collection[str] = ()
        if self.is_live:
            self.captures = (STDOUT, STDERR) if sys.stdout.isatty() else (STDERR,)
        self._live: Live | None = None
        self._picture: RenderableType = ""
        self._printed_s = time.monotonic()

    def __enter__(self) -> RunDisplay:
        if self.is_live:
            self._draw()
            live = Live(
                console=self._console, get_renderable=lambda: self._picture, auto_refresh=False
            )
            self._live = live
            self._printer.add(live.start)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._draw()
            self._printer.add(self._live.stop)
        self._printer.close()

    def say(self, text: str) -> None:
        """One line of the supervisor's own."""
        line = _own_line(text)
        self._printer.add_or_miss(lambda: self._print(line))

    def _print_missed(self, count: int) -> None:
        self._print(_own_line(f"{count} lines are missing here: nobody read them"))

    @property
    def has_room(self) -> bool:
        """Whether lines may be passed on. Where not, a script waits, as it does on a terminal."""
        return self._printer.has_room

    def pass_on(self, lines: Sequence[str]) -> None:
        """Lines that the script printed, where it does not print itself."""
        self._printer.add(lambda: self._print(Text("\n").join(map(Text.from_ansi, lines))))

    def tick(self) -> None:
        """Called several times a second."""
        now_s = time.monotonic()
        if not self._watch or now_s - self._printed_s < (
            REFRESH_EVERY_S if self.is_live else PLAIN_EVERY_S
        ):
            return
        self._printed_s = now_s
        if self._live is not None:
            if self._printer.has_room:
                self._draw()
                self._printer.add(self._live.refresh)
            return
        for query in self._stats.queries.values():
            self.say(line(query, self._stats.restarts, _now_ms()))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def _draw(self) -> None:
        """By the thread that fills the stats, so that they are never drawn while they change."""
        self._picture = self._drawn()

    def _drawn(self) -> RenderableType:
        """The table, or where it is wider than the terminal the same as text."""
        stats, now_ms = self._stats, _now_ms()
        restarts = f"{stats.restarts} restart{'' if stats.restarts == 1 else 's'}"
        # What is printed above is not wrapped; this must say so for itself that it is.
        title = Text(f"{stats.state}, {restarts}", "bold", overflow="ellipsis", no_wrap=True)
        if not stats.queries:
            return title
        table, options = _table(stats, now_ms), self._console.options
        if (
            Measurement.get(self._console, options.update(width=WIDE), table).maximum
            <= options.max_width
        ):
            return Group(title, table)
        texts = [line(query, stats.restarts, now_ms) for query in stats.queries.values()]
        return Group(title, *(Text(text, overflow="fold", no_wrap=False) for text in texts))


def _own_line(text: str) -> Text:
    return Text(f"{time.strftime('%H:%M:%S')} exactum run: {text}")


def _table(stats: ScriptStats, now_ms: int) -> Table:
    table = Table()
    for heading in ("query", "epoch", "rows", "rows/s", "lag", "state rows", "p50 / p95 ms"):
        table.add_column(heading, justify="left" if heading == "query" else "right", no_wrap=True)
    for query in stats.queries.values():
        table.add_row(
            query.label,
            _number(query.epoch),
            f"{query.rows:,}",
            f"{query.rows_per_s(now_ms):,.0f}",
            _number(query.lag_records),
            _number(query.state_rows),
            "\n".join(_phases(query)) or "-",
        )
    return table


def line(query: QueryStats, restarts: int, now_ms: int) -> str:
    """One query's numbers on one line."""
    lag = "" if query.lag_records is None else f", lag {query.lag_records:,}"
    state = "" if query.state_rows is None else f", state rows {query.state_rows:,}"
    phases = "; ".join(_phases(query))
    return (
        f"query {query.name or query.query_id}: epoch {_number(query.epoch)}, {query.rows:,} rows, "
        f"{query.rows_per_s(now_ms):,.0f} rows/s{lag}{state}, restarts {restarts}"
        + (f", {phases}" if phases else "")
    )


def _phases(query: QueryStats) -> list[str]:
    shown = []
    for phase in query.phases():
        found = query.phase_ms(phase)
        if found is not None:
            shown.append(f"{phase} {found[0]:,.0f} / {found[1]:,.0f}")
    return shown


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
