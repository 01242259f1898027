"""What a person sees of ``exactum run``: lines with the time before them; with ``--watch`` the queries' numbers."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from exactum.ops.run.board import Board, QueryBoard

PLAIN_EVERY_S = 5.0
REFRESHES_PER_SECOND = 4


class View:
    """Entered while the supervisor works. ``watch``: a live table on a terminal, lines now and then in a pipe."""

    def __init__(self, board: Board, *, watch: bool, console: Console | None = None) -> None:
        self._board = board
        self._console = console or Console(stderr=True, highlight=False)
        self._watch = watch
        self.is_live = watch and self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._printed_s = time.monotonic()

    def __enter__(self) -> View:
        if self.is_live:
            self._live = Live(
                console=self._console, get_renderable=self._table, refresh_per_second=REFRESHES_PER_SECOND
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line of the supervisor's own."""
        self._print(Text(f"{time.strftime('%H:%M:%S')} exactum run: {text}"))

    def pass_on(self, output: str) -> None:
        """What the script printed, where it does not print itself."""
        self._print(Text.from_ansi(output.rstrip("\n")))

    def tick(self) -> None:
        """Called several times a second."""
        if not self._watch or self.is_live or time.monotonic() - self._printed_s < PLAIN_EVERY_S:
            return
        self._printed_s = time.monotonic()
        for query in self._board.queries.values():
            self.say(line(query, self._board.restarts, time.monotonic()))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
        self._console.file.flush()

    def _table(self) -> Group:
        now_s = time.monotonic()
        table = Table(title=f"{self._board.state}, {self._board.restarts} restarts", title_justify="left")
        for heading in ("query", "epoch", "rows", "rows/s", "lag", "state rows", "p50 / p95 ms"):
            table.add_column(heading, justify="left" if heading == "query" else "right")
        for query in self._board.queries.values():
            table.add_row(
                query.name or query.query_id,
                _number(query.epoch),
                f"{query.rows:,}",
                f"{query.rows_per_s(now_s):,.0f}",
                _number(query.lag_records),
                _number(query.state_rows),
                "\n".join(_phases(query)) or "-",
            )
        return Group(table)


def line(query: QueryBoard, restarts: int, now_s: float) -> str:
    """One query's numbers on one line."""
    lag = "" if query.lag_records is None else f", lag {query.lag_records:,}"
    state = "" if query.state_rows is None else f", state rows {query.state_rows:,}"
    phases = "; ".join(_phases(query))
    return (
        f"query {query.name or query.query_id}: epoch {_number(query.epoch)}, {query.rows:,} rows, "
        f"{query.rows_per_s(now_s):,.0f} rows/s{lag}{state}, restarts {restarts}" + (f", {phases}" if phases else "")
    )


def _phases(query: QueryBoard) -> list[str]:
    shown = []
    for phase in query.phases():
        found = query.phase_ms(phase)
        if found is not None:
            shown.append(f"{phase} {found[0]:,.0f} / {found[1]:,.0f}")
    return shown


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
