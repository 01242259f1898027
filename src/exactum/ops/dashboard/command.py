"""``exactum dashboard``: the page of some checkpoints, until Ctrl-C."""

from __future__ import annotations

import os
import threading
import webbrowser

import click

from exactum.errors import SettingRefused
from exactum.monitor.http_server import PORTS_TRIED_MAX, HttpServer
from exactum.ops.targets.options import DECISION_LOG, with_password

PORT = 4142


@click.command()
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    required=True,
    metavar="DIR",
    help="The checkpointLocation of a query; may be given several times.",
)
@DECISION_LOG
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="0 takes a free one; where it is taken, the next one.",
)
@click.option("--open", "opens", is_flag=True, help="Show the page in this machine's browser.")
def dashboard(
    *,
    checkpoints: tuple[str, ...],
    decision_log: str | None,
    port: int,
    opens: bool,
) -> None:
    """Show queries in a browser: verdicts, lag, micro-batches, decisions.

    Everything is read from disk, so the page also shows queries whose driver is dead. It changes
    nothing, listens on 127.0.0.1 alone and shows no password. Ctrl-C ends it.
    """
    from exactum.checkpoint.query_place import is_object_url
    from exactum.monitor.job_sources import CheckpointJobs
    from exactum.ops.dashboard.routes import NOT_INSTALLED, dashboard_routes, is_installed

    if not is_installed():
        raise SettingRefused("PACKAGE_MISSING", NOT_INSTALLED.strip())
    log = with_password(decision_log)
    for folder in (each for each in checkpoints if not is_object_url(each)):
        if not os.path.isdir(folder):
            raise click.BadParameter(f"{folder} is not a folder.", param_hint="--checkpoint")
    source = CheckpointJobs(checkpoints, log)
    routes = dashboard_routes(source)
    server = HttpServer(routes, port=port, ports_tried=PORTS_TRIED_MAX if port else 1)
    click.echo(f"exactum dashboard: {server.url}")
    if opens:
        webbrowser.open(server.url)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("")
    finally:
        server.close()
