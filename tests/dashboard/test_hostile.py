"""Whatever a history holds is shown as text: no script, no style, no address of others, no path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.http_server import HttpResponse, HttpServer
from exactum.monitor.job_sources import CheckpointJobs
from exactum.ops.dashboard.routes import dashboard_routes
from tests.kit.monitor.facts import Story
from tests.kit.monitor.made_checkpoint import Checkpoint, ago

Get = Callable[[str], HttpResponse]

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "' onmouseover='alert(1)",
    "{{ 7191 * 7 }}{% raw %}",
    "</title></textarea><style>*{display:none}</style>",
    "\u202egnp.exe \u0000 \ud800 \U0001f984 ة \u0301" + "e\u0301" * 50,
    "x" * 60_000,
    "",
    "https://evil.example/a.js",
)
ADDRESSES = ("src", "href", "action", "formaction", "data-hx-get", "data-plots")


class Parts(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


def check_harmless(response: HttpResponse) -> Parts:
    """No script but ours, no style of its own, no handler, and nothing from elsewhere."""
    parts = Parts(response.body.decode())
    names = {name for name, _ in parts.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "srcdoc")}
    assert parts.tags.count("script") in (0, 3)
    assert not {"iframe", "style", "object", "base", "form"} & set(parts.tags)
    assert [v for n, v in parts.attributes if n == "src"] in (
        [],
        ["/assets/htmx.min.js", "/assets/uplot.min.js", "/assets/page.js", "/assets/icon.svg"],
    )
    addresses = [value or "" for name, value in parts.attributes if name in ADDRESSES]
    assert [a for a in addresses if not re.match(r"/[^/]|/$|#", a)] == []
    return parts


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Get]]:
    """The page of some checkpoints, as a function from an address to its answer."""
    servers: list[HttpServer] = []

    def serve(*made: Checkpoint) -> Get:
        servers.append(HttpServer(dashboard_routes(CheckpointJobs([one.folder for one in made]))))
        return lambda target: servers[-1].answer("127.0.0.1", target)

    yield serve
    for server in servers:
        server.close()


def pages_of(made: Checkpoint) -> list[str]:
    key = made.query_id
    paths = ["/", f"/job/{key}"]
    return [*paths, *(f"{path}?part=1" for path in paths), f"/job/{key}?all=1"]


def evil_story(made: Checkpoint, text: str, name: str = "orders") -> Story:
    """Each kind of fact that the page shows words of."""
    story = ago(60, made.query_id)
    story.starts(text, name=name, guarantee=text, run_id=text)
    story.completes(3, **{text: 3.0}).tell("EpochAbandoned", batch_id=4, attempt=1, reason=text)
    story.tell("EpochCompleted", batch_id=4, attempt=1, transactions=1, rows=3,
               phase_ms={}, rows_by_sink={text: 3})  # fmt: skip
    story.lag(5, 1.0, topic=text)
    story.tell(
        "UpstreamStalled", topic=text, partition=1, since_ms=story.now_ms, lso_gap=4,
        last_stable_offset=1, producer_id=1, transactional_id=text,
    )  # fmt: skip
    story.tell("FormerSinkOutOfReach", participant=text, place=text)
    story.tell(
        "Progress", lag_records=1, state_rows=2, state_bytes=3, event_time_watermark=text,
        input_rows=1,
    )  # fmt: skip
    story.tell("RowsDeadLettered", rows=3)
    story.tell("DecidedFinished", batch_ids=[4], transactions=1, rows=1)
    story.dies(error=text, disposition=text, text=text).tell("SupervisorEnds", status=text)
    return story.ends(text, "halt", text)


def test_words_stay_words(tmp_path: Path, served: Callable[..., Get]) -> None:
    """In each place of each page, and they can be read there."""
    all_made = []
    for number, text in enumerate(EVIL):
        made = Checkpoint(tmp_path / str(number), f"id-{number}")
        made.tells(evil_story(made, text, name=text)).commit(0).spark(5, 3)
        all_made.append(made)
    get = served(*all_made)
    for made in all_made:
        for path in pages_of(made):
            response = get(path)
            assert response.status == 200, path
            parts = check_harmless(response)
            assert len(response.body) < 800_000
            assert "50337" not in parts.words
    for text in EVIL[:6]:
        assert text in Parts(get("/").body.decode()).words


def test_names_of_queries_and_folders_stay_words(
    tmp_path: Path, served: Callable[..., Get]
) -> None:
    text = "<b>$(rm -rf)&amp;%2e%2e"
    made = Checkpoint(tmp_path / text, query_id=text).tells(ago(1, text).starts(name=""))
    get = served(made)
    html = get("/").body.decode()
    assert "<b>$" not in html
    link = re.search(r'href="(/job/[^"]*)"', html)
    assert link is not None
    assert get(link[1]).status == 200
    assert text in Parts(get(link[1]).body.decode()).words


ODD = (
    None, True, -1, 1e308, 10**40, "text", [], [[]], {}, {"a": {"b": None}}, float("nan"), float("inf"),
)  # fmt: skip


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON: a browser cannot read it")


def test_a_history_of_anything_is_survived(tmp_path: Path, served: Callable[..., Get]) -> None:
    """Fields that are missing or of another kind, lines that are none: the page stands, and says
    how many it could not read.
    """
    made = Checkpoint(tmp_path / "c")
    made.tells(evil_story(made, "words"))
    (segment,) = (made.folder / HISTORY).glob("*.jsonl")
    lines = [json.loads(line) for line in segment.read_text().splitlines()]
    broken: list[str] = [
        '{"at_ms": 1e999, "fact": "RunStarted"}',
        "[" * 5_000,
        "null",
        '"x"',
        "\x00",
        "{",
    ]
    for line in lines:
        for name in line:
            broken.append(json.dumps({k: v for k, v in line.items() if k != name}))
            broken += [json.dumps({**line, name: odd}) for odd in ODD]
    segment.write_bytes(b"\xff\xfe\n" + "\n".join(broken).encode() + b"\n" + segment.read_bytes())
    get = served(made)
    for path in pages_of(made):
        assert get(path).status == 200, path
        check_harmless(get(path))
    assert "lines of the history could not be read" in get("/").body.decode()
    plots = json.loads(get(f"/job/{made.query_id}.json").body, parse_constant=refuse)
    plots = plots["past"]["plots"]
    assert all(len(plots[name]) == len(plots["times"]) for name in ("rows", "lag_records"))


NOWHERE = [
    "/job/..%2f..%2f..%2fetc%2fpasswd",
    "/job/../../etc/passwd",
    "/job/%00",
    "/job/",
    "/job/unknown",
    "/job/KEY/..%2f..%2fmetadata",
    "/job/KEY/other",
    "/job/other.json",
    "/job/KEY.json/1",
    "/job/KEY/%D9%A3",
    "/assets/../pages.py",
    "/assets/..%2fpages.py",
    "/assets/%2e%2e/routes.py",
    "/assets//etc/passwd",
    "/assets/VENDORED.md",
    "/assets/",
    "/script",
    "/other",
]


def test_no_address_leads_out(tmp_path: Path, served: Callable[..., Get]) -> None:
    """Only known queries and the files of the page are there."""
    made = Checkpoint(tmp_path / "c")
    get = served(made)
    for target in NOWHERE:
        response = get(target.replace("KEY", made.query_id))
        assert response.status == 404, target
        assert b"root:" not in response.body
        if response.content_type.startswith("text/html"):
            check_harmless(response)
