"""The metrics: their table, their exposition, and the health of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from flow import Summary
from flow.errors import StepError
from flow.monitoring.metrics import METRICS, Metric
from flow.monitoring.run_status import MAX_PARTITIONS, RunStatus, health_of
from flow.web.requests import exposition
from tests.support.monitored import Clock, epoch_report, recorded

PAGE = (Path(__file__).parents[2] / "docs/how_to/monitoring.md").read_text("utf-8")
LABELS = {metric.name: metric.labels for metric in METRICS}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples(status: RunStatus) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values that a scrape reads, by name and by values of labels but `flow`."""
    text = exposition(status, None)[0].decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["flow"] == "hourly"
            labels = tuple(sample.labels[label] for label in LABELS[sample.name])
            found[sample.name, labels] = sample.value
    return found


def row_of(metric: Metric) -> str:
    """Return the row of a metric in the table of the page."""
    kind = "counter" if metric.is_counter else "gauge"
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    cells = (f"`{metric.name}`", kind, metric.unit, labels, metric.meaning)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_table_of_the_documentation_is_that_of_the_code() -> None:
    heading = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|"
    assert "\n".join([heading, *map(row_of, METRICS)]) in PAGE


def test_names_and_units_follow_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith("flow_")
        assert ("seconds" in metric.name) == metric.unit.startswith("seconds")


def test_a_scrape_agrees_with_the_reports() -> None:
    found = samples(recorded(epoch_report(0, 100), epoch_report(1, 50)).status)
    expected = {
        ("flow_step_out_items_total", ("visits",)): 150,
        ("flow_step_late_items_total", ("hours",)): 4,
        ("flow_step_keys", ("hours",)): 7,
        ("flow_step_open_windows", ("hours",)): 1_200,
        ("flow_step_buffered_values", ("hours",)): 30,
        ("flow_step_busy_seconds_total", ("hours",)): 3.0,
        ("flow_epochs_total", ()): 2,
        ("flow_run_state", ("running",)): 1,
        ("flow_run_state", ("failed",)): 0,
        ("flow_last_epoch_phase_seconds", ("steps",)): 0.6,
        ("flow_workers_memory_bytes", ()): 3_000,
        ("flow_source_behind_items", ("visits", "visits/0")): 5,
        ("flow_source_behind_seconds", ("visits",)): 12.0,
        ("flow_step_watermark_lag_seconds", ("hours", "least")): 10.0,
        ("flow_step_watermark_lag_seconds", ("hours", "median")): 12.0,
        ("flow_step_watermark_lag_seconds", ("hours", "greatest")): 60.0,
    }
    assert {key: found[key] for key in expected} == expected


def test_the_openmetrics_format_is_read_by_its_parser() -> None:
    body, content_type = exposition(recorded(epoch_report()).status, OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    families = list(openmetrics.text_string_to_metric_families(body.decode()))
    assert {family.name for family in families} == {
        metric.name.removesuffix("_total") for metric in METRICS
    }


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd</script>'
    status = recorded(epoch_report(behind={"visits": {odd: 3}})).status
    assert samples(status)["flow_source_behind_items", ("visits", odd)] == 3


def test_labels_by_partition_are_capped() -> None:
    counts = {f"visits/{number}": number for number in range(MAX_PARTITIONS + 10)}
    found = samples(recorded(epoch_report(behind={"visits": counts})).status)
    behind = {
        labels[1]: n for (name, labels), n in found.items() if name == "flow_source_behind_items"
    }
    assert len(behind) == MAX_PARTITIONS + 1
    assert behind["other"] == sum(range(10))
    assert sum(behind.values()) == sum(counts.values())


#  commit   0        60       61
#  health   ok       ok       503
@pytest.mark.parametrize(("age", "is_healthy"), [(0.0, True), (60.0, True), (61.0, False)])
def test_a_run_is_healthy_while_its_last_commit_is_young(age: float, is_healthy: bool) -> None:
    health = health_of(recorded(epoch_report()).status, 1_001.0 + age)
    assert health.is_healthy is is_healthy
    assert health.reason.startswith(f"the last commit was {age:.0f} s ago")


def test_a_patience_is_longer_with_a_long_trigger_or_as_asked() -> None:
    status = recorded(epoch_report()).status
    slow = replace(status, trigger_seconds=100.0)
    assert health_of(slow, 1_301.0).is_healthy
    assert not health_of(slow, 1_302.0).is_healthy
    assert health_of(status, 2_000.0, patience=1_000.0).is_healthy


def test_health_before_the_first_commit_and_after_the_end() -> None:
    waiting = recorded(clock=Clock(500.0)).status
    assert health_of(waiting, 550.0).is_healthy
    assert not health_of(waiting, 561.0).is_healthy
    failed = recorded(epoch_report()).fail(StepError("hours", "broke", key="k"))
    assert health_of(failed, 1_001.0) == (False, "the run has failed: step 'hours': broke")
    ended = recorded(epoch_report()).end(Summary("hourly", "streaming"))
    assert health_of(ended, 9_999.0) == (True, "the run has ended")
