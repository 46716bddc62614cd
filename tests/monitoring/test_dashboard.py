"""The dashboard for Grafana: its queries name metrics and labels that exist, its panels fit."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from flow.monitoring.metrics import METRICS

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "examples/grafana/flows.json").read_text("utf-8")
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
LABELS = {metric.name: {"flow", *metric.labels} for metric in METRICS}
QUERIES = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
COLUMNS = 24
"""Columns of Grafana's grid."""


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\bflow_\w+", query))


@pytest.mark.parametrize(("title", "target"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_query_names_existing_metrics_and_labels(title: str, target: dict[str, Any]) -> None:
    assert title
    (name,) = metrics_in(target["expr"])
    selected = set(re.findall(r"(\w+)\s*=~?\s*\"", target["expr"]))
    shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert "flow" in selected
    assert selected | shown <= LABELS[name]
    is_counter = name.endswith("_total")
    assert is_counter == ("rate(" in target["expr"])
    assert target["expr"].count("(") == target["expr"].count(")")


def test_every_metric_that_changes_during_a_run_is_shown() -> None:
    shown = set().union(*(metrics_in(target["expr"]) for _, target in QUERIES))
    left_out = {"flow_start_time_seconds", "flow_last_epoch_phase_seconds", "flow_workers"}
    assert shown == LABELS.keys() - left_out


def test_the_variables_are_the_data_source_and_the_flow() -> None:
    names = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert names["datasource"]["type"] == "datasource"
    assert metrics_in(names["flow"]["definition"]) <= LABELS.keys() | {"flow"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS))) - {"__rate_interval"}
    assert used == names.keys()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["type"] in ("stat", "timeseries") for panel in PANELS)
    assert all(panel["title"] and panel["description"] for panel in PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= COLUMNS for one in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_the_schema_is_that_of_an_exported_dashboard() -> None:
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert all(DASHBOARD[name] for name in ("uid", "title"))
    assert "id" not in DASHBOARD, "an id is of one installation of Grafana"
