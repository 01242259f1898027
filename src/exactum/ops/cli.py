"""The command ``exactum``. Spark and the clients of servers are imported when a command runs, so
that ``--help`` is fast.
"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click

from exactum._version import __version__
from exactum.errors import ExactumError
from exactum.ops.accept import accept
from exactum.ops.dashboard.command import dashboard
from exactum.ops.dead_letters.commands import dead_letters
from exactum.ops.doctor.command import doctor
from exactum.ops.project.project import init
from exactum.ops.render import ExitStatus, show_refusal
from exactum.ops.run.command import run
from exactum.ops.savepoint import savepoint
from exactum.ops.status import status
from exactum.ops.transactions.commands import transactions
from exactum.ops.verify import verify

ENDING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended: 128 + SIGINT


class ExactumGroup(click.Group):
    """Prints an ExactumError as its message, without a traceback: what was asked is refused, or
    could not be found out.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ExactumError as error:
            show_refusal(error)
            ctx.exit(ExitStatus.CANNOT_TELL)


@click.group(cls=ExactumGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="exactum")
def main() -> None:
    """Exactly-once sinks for PySpark streaming, by two-phase commit."""


main.add_command(init)
main.add_command(doctor)
main.add_command(run)
main.add_command(savepoint)
main.add_command(status)
main.add_command(transactions)
main.add_command(accept)
main.add_command(dashboard)
main.add_command(verify)
main.add_command(dead_letters)


@main.group()
def local() -> None:
    """Real servers for a laptop."""


@local.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="0 takes a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the data live and are kept; by default a temporary folder, removed at the end.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Make this topic, with 4 partitions, where it is not there yet. May be given again.",
)
def kafka(port: int, data_dir: Path | None, topics: tuple[str, ...]) -> None:
    """Run a Kafka broker until Ctrl-C.

    The jars are fetched at the first time, into a cache of exactum's own. Needs Java 17 or later.
    """
    from exactum.local.kafka import run_kafka

    run_kafka(port, data_dir, topics, echo=click.echo)


@local.command("class-archive")
def class_archive() -> None:
    """Make local sessions on this machine start 3 to 6 s earlier, now and once.

    A session that starts without it has it made in the background anyway. Some 200 MB in
    exactum's cache. Takes half a minute. Does nothing where it is there for this Java and this
    PySpark. For the build of a container image.
    """
    from exactum.spark.startup.class_archive import make

    make(echo=click.echo)


@main.command()
@click.option(
    "--kills",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="SIGKILLs for each driver.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="How many each query reads.",
)
@click.option(
    "--comparison/--no-comparison",
    default=True,
    help="Then the same through Spark's own Kafka sink.",
)
@click.option(
    "--seed", type=int, help="Repeats the plan of kills of an earlier run; by default a new one."
)
@click.option(
    "--keep", is_flag=True, help="Keep the work folder: logs, checkpoints, the broker's data."
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to put the last screen, as SVG.",
)
def demo(
    *,
    kills: int,
    records: int,
    comparison: bool,
    seed: int | None,
    keep: bool,
    picture: Path | None,
) -> None:
    """Kill a query again and again, and count what comes out.

    Starts a Kafka broker, and runs the crash test of a query: numbered orders are copied, and the
    driver gets SIGKILLs in the middle of its work, and is started again at once. Then the same
    through Spark's own Kafka sink. Ends with what a read_committed reader sees. The exit status is
    0 only if exactum's output is exact: no order lost, none doubled.
    """
    from exactum.ops.crash_test.demo import Demo, Settings

    for number in ENDING:
        signal.signal(number, _interrupt)
    seed = random.randrange(1_000_000) if seed is None else seed
    try:
        exact = Demo(Settings(kills, records, comparison, seed, keep, picture)).run()
    except KeyboardInterrupt:
        show_refusal("interrupted; everything that was started is stopped")
        sys.exit(INTERRUPTED)
    sys.exit(0 if exact else 1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
