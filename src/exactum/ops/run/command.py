"""``exactum run``: the command and its options."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from exactum.ops.run.values import ListenAddress, duration, listen_address

OWN_OPTIONS = "Options of the script itself stand behind --, as in: exactum run app.py --"


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
    "--restart-delay",
    type=duration,
    default="1 s",
    show_default=True,
    help="Before the script that died is started again; half as long again after each death.",
)
@click.option(
    "--restart-delay-max",
    type=duration,
    show_default="1 min, or --restart-delay where that is longer",
    help="The longest delay. After an hour without a death the first one comes next.",
)
@click.option(
    "--restart-attempts",
    type=click.IntRange(min=0),
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
    show_default="5 s",
    help="How long the first one may be silent before the standby takes over; at least 2 s.",
)
@click.option(
    "--stop-timeout",
    type=duration,
    default="60 s",
    show_default=True,
    help="How long the epochs at hand may take after SIGTERM, SIGHUP or Ctrl-C.",
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
def run(
    *,
    script: Path,
    arguments: tuple[str, ...],
    submit: str | None,
    restart_delay: float,
    restart_delay_max: float | None,
    restart_attempts: int | None,
    start_attempts: int,
    standby: bool,
    standby_timeout: float | None,
    stop_timeout: float,
    listen: ListenAddress | None,
) -> None:
    """Keep an ordinary PySpark SCRIPT running: start it again when it dies.

    Give the script's own arguments after "--". SIGTERM, SIGHUP or Ctrl-C stops its queries after
    their epochs. A query that was fenced or refused is not started again. Ends with status 0 when
    the script is done or was stopped, 1 when it is not started again because it failed too often
    (or did not stop in time), 2 when the command is wrong, 3 when the script must not be started
    again.
    """
    from exactum.ops.run.plan import Plan, longest_delay_s, standby_timeout_s
    from exactum.ops.run.restart import Restarts
    from exactum.ops.run.run_display import RunDisplay
    from exactum.ops.run.script_facts import ScriptFacts
    from exactum.ops.run.submit import submitted
    from exactum.ops.run.supervisor import Supervisor
    from exactum.ops.run.web import serving

    silent_s = standby_timeout_s(standby_timeout, standby=standby)
    longest_s = longest_delay_s(restart_delay, restart_delay_max)
    command = (sys.executable, str(script), *arguments)
    if submit is not None:
        command = submitted(submit, script, arguments)
    facts = ScriptFacts(standby=standby)
    view = RunDisplay()
    with serving(listen, facts, view.say):
        plan = Plan(
            script=str(script),
            command=command,
            by_submit=submit is not None,
            standby=standby,
            standby_timeout_s=silent_s,
            stop_timeout_s=stop_timeout,
            start_attempts=start_attempts,
        )
        restarts = Restarts(restart_delay, longest_s, restart_attempts)
        status = Supervisor(plan, restarts, facts, say=view.say).run()
    sys.exit(status.value)
