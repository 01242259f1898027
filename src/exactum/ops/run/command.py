"""``exactum run``: the command and its options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from exactum.errors import SettingRefused
from exactum.ops.run.restart import (
    ExponentialDelay,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from exactum.ops.run.values import ListenAddress, duration, listen_address

F = TypeVar("F", bound=Callable[..., Any])

OWN_OPTIONS = "Options of the script itself stand behind --, as in: exactum run app.py --"
PREFIX = "--restart-strategy."
STRATEGIES = ("exponential-delay", "fixed-delay", "none")


def _option(strategy: str, name: str, **more: Any) -> Callable[[F], F]:
    parameter = f"{strategy}_{name}".replace("-", "_")
    return click.option(f"{PREFIX}{strategy}.{name}", parameter, show_default=True, **more)


class RunCommand(click.Command):
    """Says where the script's own options stand, to somebody who gives one to exactum."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = f"{error.format_message()} {OWN_OPTIONS} {error.option_name} ..."
            raise click.UsageError(text, ctx) from None


@click.command(cls=RunCommand)
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--submit",
    metavar="COMMAND",
    help='Start the script by spark-submit, in client mode: "spark-submit --master ...".',
)
@click.option(
    "--restart",
    type=click.Choice(STRATEGIES),
    default="exponential-delay",
    show_default=True,
    help="When the script dies: Flink's strategies, each with the options below.",
)
@_option("fixed-delay", "attempts", type=click.IntRange(min=0), default=1, help="Restarts in all.")
@_option("fixed-delay", "delay", type=duration, default="1 s", help="Before each restart.")
@_option(
    "exponential-delay", "initial-backoff", type=duration, default="1 s", help="The first delay."
)
@_option(
    "exponential-delay", "max-backoff", type=duration, default="1 min", help="The longest delay."
)
@_option(
    "exponential-delay",
    "backoff-multiplier",
    type=float,
    default=1.5,
    help="From one delay to the next.",
)
@_option(
    "exponential-delay",
    "reset-backoff-threshold",
    type=duration,
    default="1 h",
    help="After so long without a death the first delay comes next.",
)
@_option(
    "exponential-delay",
    "jitter-factor",
    type=float,
    default=0.1,
    help="Share by which a delay is varied.",
)
@_option(
    "exponential-delay",
    "attempts-before-reset-backoff",
    type=click.IntRange(min=1),
    default=None,
    help="Restarts in a row; by default without end.",
)
@click.option(
    "--start-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Give up on a script that ends so often before any query of it has begun.",
)
@click.option(
    "--standby", is_flag=True, help="Keep a second process ready that takes over within seconds."
)
@click.option(
    "--standby-timeout",
    type=duration,
    default="5 s",
    show_default=True,
    help="How long the first one may be silent before the standby takes over; at least 2 s.",
)
@click.option(
    "--stop-timeout",
    type=duration,
    default="60 s",
    show_default=True,
    help="How long the epochs at hand may take after SIGTERM or Ctrl-C.",
)
@click.option(
    "--from-savepoint",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="PATH",
    help="Make the checkpoint of this savepoint first, unless it was made of it before. Needs "
    "--checkpoint.",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="The checkpointLocation of the script's query, for --from-savepoint.",
)
@click.option(
    "--as",
    "identity",
    type=click.Choice(["fork", "same"]),
    default="fork",
    show_default=True,
    help="Who starts from the savepoint: a query with an identity of its own, or the query "
    "itself, moved.",
)
@click.option(
    "--watch", is_flag=True, help="A line with each query's numbers every 5 s, where they change."
)
@click.option(
    "--listen",
    type=listen_address,
    default="127.0.0.1:4141",
    show_default=True,
    metavar="[HOST:]PORT",
    help="Where the page, metrics and probes are served; where it is taken, the next free port. "
    "none: nowhere.",
)
@click.option(
    "--no-kill", is_flag=True, hidden=True, help="Leave a frozen process alive (tests of fencing)."
)
def run(
    *,
    script: Path,
    arguments: tuple[str, ...],
    submit: str | None,
    restart: str,
    start_attempts: int,
    standby: bool,
    standby_timeout: float,
    stop_timeout: float,
    from_savepoint: Path | None,
    checkpoint: str | None,
    identity: str,
    watch: bool,
    listen: ListenAddress | None,
    no_kill: bool,
    **strategy: float | int | None,
) -> None:
    """Keep an ordinary PySpark SCRIPT running: start it again when it dies.

    Give the script's own arguments after "--". SIGTERM or Ctrl-C stops its queries after their
    epochs. A query that was fenced or refused is not started again. Ends with status 0 when the
    script is done or was stopped, 1 when it is not started again because it failed too often (or
    did not stop in time), 3 when it must not be.
    """
    from exactum.ops.run.plan import Plan, refuse_short_timeout
    from exactum.ops.run.run_display import RunDisplay
    from exactum.ops.run.script_facts import ScriptFacts
    from exactum.ops.run.submit import submitted
    from exactum.ops.run.supervisor import Supervisor
    from exactum.ops.run.web import serving

    chosen = strategy_of(restart, strategy)
    if standby:
        refuse_short_timeout(standby_timeout)
    command = (sys.executable, str(script), *arguments)
    if submit is not None:
        command = submitted(submit, script, arguments)
    facts = ScriptFacts(standby=standby, script=str(script))
    with RunDisplay(facts.stats, watch=watch) as view, serving(listen, facts, view.say):
        _restore(from_savepoint, checkpoint, identity, view.say)
        plan = Plan(
            script=str(script),
            command=command,
            by_submit=submit is not None,
            standby=standby,
            standby_timeout_s=standby_timeout,
            stop_timeout_s=stop_timeout,
            kills=not no_kill,
            start_attempts=start_attempts,
        )
        supervisor = Supervisor(
            plan,
            chosen,
            facts,
            say=view.say,
            tick=view.tick,
        )
        status = supervisor.run()
    sys.exit(status.value)


def _restore(
    savepoint: Path | None, checkpoint: str | None, identity: str, say: Callable[[str], None]
) -> None:
    """Make ``checkpoint`` of ``savepoint``, where one is given. Idempotent, so that a start may be
    repeated.

    Raises:
        SettingRefused: only one of the two is given.
        CheckpointRefused: see ``savepoint.restore``.
    """
    if savepoint is None and checkpoint is None:
        return
    if savepoint is None or checkpoint is None:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            "--from-savepoint and --checkpoint belong together: the savepoint, and the "
            "checkpointLocation that the script gives to its query. Nothing was started. "
            f"{OWN_OPTIONS} --checkpoint ...",
        )
    from exactum.checkpoint.savepoint.restore import Identity, restore

    done = restore(savepoint, checkpoint, Identity(identity))
    how = (
        "was made of this savepoint before" if done.already else f"is made of savepoint {savepoint}"
    )
    say(f"{done.checkpoint} {how}: query {done.query_id} goes on after epoch {done.batch_id}")


def strategy_of(name: str, options: dict[str, float | int | None]) -> RestartStrategy:
    """The strategy of this name with its options, which are named ``fixed_delay_attempts`` and so
    on.

    Raises:
        SettingRefused: a value that it cannot have.
    """
    prefix = name.replace("-", "_") + "_"
    own = {
        key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)
    }
    durations = (
        "delay",
        "initial_backoff",
        "max_backoff",
        "reset_backoff_threshold",
    )
    settings = {f"{key}_s" if key in durations else key: value for key, value in own.items()}
    if name == "fixed-delay":
        return FixedDelay(**settings)  # type: ignore[arg-type]
    if name == "exponential-delay":
        return ExponentialDelay(**settings)  # type: ignore[arg-type]
    return NoRestart()
