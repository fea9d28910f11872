"""docs/monitoring.md and deploy/monitoring tell of the series and failures that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from recordmill.beam_jobs.report.monitoring import HELP
from recordmill.schemas.errors import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/monitoring.md").read_text()
SERIES = {f"recordmill_{name}" for name in HELP}
FILES = ROOT / "deploy/monitoring"


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_alerts_are_about_series_that_there_are() -> None:
    for rule in alerts():
        names = set(re.findall(r"recordmill_\w+", rule["expr"]))
        assert names, rule
        assert names <= SERIES, rule
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_each_kind_of_failure_has_one_alert() -> None:
    expressions = " ".join(rule["expr"] for rule in alerts())
    assert sorted(re.findall(r'kind="(\w+)"', expressions)) == sorted(KINDS)
    [kinds] = re.findall(
        r"`recordmill_last_run_failure` \| label `kind`: (.*?) \(", PAGE
    )
    assert sorted(kinds.split(", ")) == sorted(KINDS)


def test_the_alert_of_a_schedule_outlives_the_series() -> None:
    """A collector of OTLP forgets them long before the alert is due."""
    [stale] = [rule["expr"] for rule in alerts() if rule["alert"] == "RecordmillStale"]
    found = re.fullmatch(
        r"time\(\) - last_over_time\(\w+\[(\d+)d\]\) > (\d+) \* 3600", stale
    )
    assert found
    days, hours = map(int, found.groups())
    assert 24 * days > 2 * hours


def test_each_alert_is_told() -> None:
    told = re.findall(r"^\| `(Recordmill\w+)` \|", PAGE, re.MULTILINE)
    assert told == [rule["alert"] for rule in alerts()]


def test_the_dashboard_shows_series_that_there_are() -> None:
    board = json.loads((FILES / "dashboard.json").read_text())
    [choice] = board["templating"]["list"]
    queries = [choice["query"]]
    for panel in board["panels"]:
        [target] = panel["targets"]
        queries.append(target["expr"])
        assert '{dataset=~"$dataset"}' in target["expr"]
    for query in queries:
        [name] = re.findall(r"recordmill_\w+", query)
        assert name in SERIES
    places = [
        tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]
    ]
    assert len(set(places)) == len(places)
