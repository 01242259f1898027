"""What each alert rule is to make of made-up series: for ``promtool test rules``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kit.monitor.prometheus import RULES

AT = 'job="exactum",instance="host:4141"'
Q = f'{AT},query="orders"'
POINTS = 160
"""Every 30 s, and looked at after 70 min."""
HEALTHY: Mapping[str, str] = {
    f"up{{{AT}}}": "1+0x160",
    f"exactum_up{{{Q}}}": "1+0x160",
    f"exactum_stopped{{{Q}}}": "0+0x160",
    f"exactum_process_up{{{AT}}}": "1+0x160",
    f"exactum_process_restarts_total{{{AT}}}": "0+0x160",
    f"exactum_process_silent_seconds{{{AT}}}": "0.4+0x160",
    f"exactum_in_doubt_age_seconds{{{Q}}}": "0+0x160",
    f'exactum_timeout_remaining_seconds{{{Q},sink="s"}}': "899+0x160",
    f'exactum_transaction_timeout_seconds{{{Q},sink="s"}}': "900+0x160",
    f'exactum_upstream_stalled{{{Q},topic="t"}}': "0+0x160",
    f"exactum_batch_age_seconds{{{Q}}}": "1+0x160",
    f'exactum_input_lag_seconds{{{Q},topic="t"}}': "1+0x160",
    f'exactum_input_lag_records{{{Q},topic="t"}}': "5+0x160",
    f"exactum_last_commit_timestamp_seconds{{{Q}}}": "0+30x160",
    f"exactum_run_timestamp_seconds{{{Q}}}": "0+0x160",
    f'exactum_epochs_total{{{Q},outcome="abandoned"}}': "0+0x160",
    f"exactum_rows_dead_lettered_total{{{Q}}}": "0+0x160",
    f"exactum_rows_skipped_total{{{Q}}}": "0+0x160",
    f'exactum_transactions_total{{{Q},result="expired"}}': "0+0x160",
    f'exactum_transactions_total{{{Q},result="salvaged"}}': "0+0x160",
    f"exactum_fenced_total{{{Q}}}": "0+0x160",
    f"exactum_events_dropped_total{{{AT}}}": "0+0x160",
    f"exactum_standby_ready{{{AT}}}": "1+0x160",
}
LATE, ONCE, OLD = "_x130 1+0x30", "0+0x130 1+0x30", "5+0x160"
"""A counter that is first seen as 1; one that rises; one that rose long ago."""

Case = tuple[str, Mapping[str, str | None], set[str]]
CASES: list[Case] = [
    ("all is well", {}, set()),
    ("not scraped", {"up": "0+0x160"}, {"ExactumNotScraped"}),
    ("another job", {"up": None}, set()),
    ("down", {"exactum_up": "0+0x160"}, {"ExactumDown"}),
    ("a restart", {"exactum_up": "1+0x138 0+0x1 1+0x20"}, set()),
    ("stopped", {"exactum_up": "0+0x160", "exactum_stopped": "1+0x160"}, set()),
    (
        "dead before any query",
        {"exactum_up": None, "exactum_process_up": "0+0x160"},
        {"ExactumDown"},
    ),
    ("never begun", {"exactum_up": None}, {"ExactumNotBegun"}),
    ("a crash loop", {"process_restarts": "0+0x120 0+0.25x40"}, {"ExactumRestarting"}),
    ("two restarts", {"process_restarts": "0+0x130 2+0x30"}, set()),
    ("frozen", {"silent": "20+0x160"}, {"ExactumSilent"}),
    ("a pause", {"silent": "10+0x160"}, set()),
    ("in doubt", {"in_doubt_age": "250+0x160", "remaining": "650+0x160"}, {"ExactumInDoubt"}),
    ("in doubt, early", {"in_doubt_age": "100+0x160", "remaining": "800+0x160"}, set()),
    (
        "in doubt without a timeout",
        {"in_doubt_age": "400+0x160", "remaining": None, "transaction_timeout": None},
        {"ExactumInDoubt"},
    ),
    ("timeout near", {"remaining": "200+0x160"}, {"ExactumTimeoutNear"}),
    ("timeout far", {"remaining": "300+0x160"}, set()),
    ("held upstream", {"upstream": "1+0x160"}, {"ExactumUpstreamHeld"}),
    ("held for a minute", {"upstream": "0+0x138 1+0x1 0+0x20"}, set()),
    (
        "stalled in a micro-batch",
        {"batch_age": "700+0x160", "last_commit": "0+0x160"},
        {"ExactumStalled"},
    ),
    (
        "stalled with input",
        {"input_lag_seconds": "700+0x160", "last_commit": None},
        {"ExactumStalled"},
    ),
    ("nothing to do", {"last_commit": "0+0x160"}, set()),
    ("far behind, and commits", {"input_lag_seconds": "700+0x160"}, set()),
    (
        "falls behind",
        {"input_lag_seconds": "120+0x160", "input_lag_records": "100+10x160"},
        {"ExactumLagGrowing"},
    ),
    (
        "catches up",
        {"input_lag_seconds": "120+0x160", "input_lag_records": "5000-10x160"},
        set(),
    ),
    ("attempts fail", {"abandoned": "0+1x160"}, {"ExactumAttemptsFail"}),
    ("dead letters", {"dead_lettered": ONCE}, {"ExactumDeadLetters"}),
    ("skipped", {"skipped": ONCE}, {"ExactumRowsSkipped"}),
    *(
        (f"{name} {how}", {name: values}, {alert} if values != OLD else set())
        for name, alert in (
            ("expired", "ExactumExpired"),
            ("salvaged", "ExactumSalvaged"),
            ("fenced", "ExactumFenced"),
        )
        for how, values in (("at once", LATE), ("once", ONCE), ("long ago", OLD))
    ),
    ("events lost", {"dropped": ONCE}, {"ExactumEventsDropped"}),
    ("events lost long ago", {"dropped": OLD}, set()),
    ("no standby", {"standby": "0+0x160"}, {"ExactumStandbyMissing"}),
]
"""What is different from ``HEALTHY`` (a part of a series' name; None: absent), and what fires."""


def unit_tests() -> dict[str, Any]:
    """As promtool reads them; JSON is YAML."""
    return {
        "rule_files": [str(Path(RULES))],
        "evaluation_interval": "1m",
        "tests": [
            {
                "name": name,
                "interval": "30s",
                "input_series": [
                    {"series": series, "values": values} for series, values in _series(changes)
                ],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "70m",
                        "exp_samples": [
                            {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing
                        ],
                    }
                ],
            }
            for name, changes, firing in CASES
        ],
    }


def _series(changes: Mapping[str, str | None]) -> list[tuple[str, str]]:
    found = dict(HEALTHY)
    for part, values in changes.items():
        whole = [one for one in found if part in (one.split("{")[0], one.split('"')[-2])] or [
            one for one in found if part in one
        ]
        assert len(whole) == 1, f"{part} is a part of {whole}"
        if values is None:
            del found[whole[0]]
        else:
            found[whole[0]] = values
    return list(found.items())
