"""``exactum doctor``: the command and its options."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import click

from exactum.errors import SettingRefused
from exactum.ops.run.values import duration
from exactum.ops.targets.options import (
    DECISION_LOG,
    JSON,
    SINKS,
    with_password,
)
from exactum.ops.targets.properties_file import SERVERS, client_settings_of
from exactum.ops.targets.sinks import given_sinks
from exactum.problem import Problem, of_failure, ok
from exactum.protocol.inspection import Provable
from exactum.protocol.sink import Sink

Check = Callable[[], Iterable[Problem]]
"""It may raise: what it found before counts."""
Area = tuple[str, Check]


@click.command()
@click.option("--checkpoint", metavar="DIR", help="The query's checkpointLocation.")
@DECISION_LOG
@click.option(
    "--staging", metavar="PLACE", help="Where its rows wait, if the query is given staging=."
)
@click.option("--bootstrap-servers", metavar="HOSTS", help="The cluster that the query reads.")
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A Kafka client's .properties: how to log in to the brokers.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="One that the query reads.")
@click.option("--group", metavar="NAME", help="The query's group_id.")
@SINKS
@click.option(
    "--longest-outage",
    type=duration,
    metavar="SPAN",
    help='How long the query may be down, like "30 min": compared with timeouts and retention.',
)
@JSON
def doctor(
    *,
    checkpoint: str | None,
    decision_log: str | None,
    staging: str | None,
    bootstrap_servers: str | None,
    command_config: Path | None,
    topics: tuple[str, ...],
    group: str | None,
    sinks: str | None,
    longest_outage: float | None,
    as_json: bool,
) -> None:
    """Look at everything that a query will need, before its first start.

    What is given is looked at: this machine always. Files, objects and records that are made for
    it are removed again, and nothing else is changed. Run it as the user who runs the query.

    Ends with status 0 where all is well but for warnings, 1 with an error, 2 where something could
    not be looked at.
    """
    from rich.console import Console

    from exactum.ops import render
    from exactum.ops.doctor import checkpoint as state
    from exactum.ops.doctor import machine

    signal.signal(signal.SIGTERM, _interrupt)  # what is made is removed
    decision_log = with_password(decision_log)
    given = given_sinks(sinks) if sinks else {}
    login = {} if command_config is None else client_settings_of(command_config)
    in_file = login.pop(SERVERS, "")
    servers = bootstrap_servers or in_file
    areas: list[Area] = [(machine.AREA, machine.findings)]
    if checkpoint is not None:
        check = partial(state.checkpoint_problems, checkpoint, decision_log)
        areas.append((state.CHECKPOINT, check))
    if checkpoint is not None or decision_log is not None:
        areas.append((state.LOG, partial(state.log_problems, decision_log, checkpoint)))
    waits = any(isinstance(s, Provable) and s.waits_in_staging for s in given.values())
    if staging is not None or (checkpoint is not None and waits):
        areas.append((state.WAITS, partial(state.staging_problems, checkpoint, staging)))
    if checkpoint is not None and not given:
        areas.append((state.SINKS, partial(state.sinks_not_given, checkpoint)))
    if servers:
        from exactum.kafka.proof import prove_source

        proof = partial(prove_source, {**login, SERVERS: servers}, topics, group, longest_outage)
        areas.append((f"Kafka {servers}", proof))
    elif topics or group is not None:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            "--topic and --group need the cluster that they are on: --bootstrap-servers "
            "HOST:PORT, or bootstrap.servers in the file of --command-config.",
        )
    areas += [(name, _proof_of(name, sink, longest_outage)) for name, sink in given.items()]
    with Console(stderr=True).status("") as status:

        def tick(area: str) -> None:
            status.update(f"looking at {area}")

        found = list(dict.fromkeys(examine(areas, tick)))
    end = render.status_of(found)
    if as_json:
        render.show_json({"status": end, "findings": found})
    else:
        render.show_problems(found)
    sys.exit(end)


def examine(areas: Iterable[Area], tick: Callable[[str], None] = print) -> Iterator[Problem]:
    """What is found in one area after the other; ``tick`` is called with the name of each."""
    for name, check in areas:
        tick(name)
        try:
            yield from check()
        except Exception as failure:  # noqa: BLE001  (a finding: the others go on)
            yield of_failure(name, failure)


def _proof_of(name: str, sink: Sink, longest_outage_s: float | None) -> Check:
    """What is tried of a sink. ``longest_outage_s``: None where nobody said."""
    if isinstance(sink, Provable):
        return partial(sink.prove, longest_outage_s)
    text = (
        f"{type(sink).__name__} was not tried: only its own code knows its target. "
        "exactum.testing.TwoPhaseCommitContract crashes a TwoPhaseCommitSink at every call."
    )
    return lambda: [ok(name, text)]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
