"""Events of OpenLineage, read back from the file to which a client of the library wrote them."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("openlineage.client")

from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.transport import Transport

import flow.operators as op
from flow import Dataflow, EnvironmentProblem, FlowBuildError, Summary
from flow.connectors.files import JsonLinesSource, ParquetSink, TextSource
from flow.connectors.kafka import KafkaSink
from flow.errors import SinkError, StepError
from flow.monitoring.lineage import OpenLineageEvents

COUNTS = Counter({("visits", "out"): 7, ("old", "out"): 5, ("files", "in"): 6, ("topic", "in"): 4})


def visits_flow() -> Dataflow:
    """Return a flow of two inputs, one of two data sets, and of two outputs."""
    flow = Dataflow("visits")
    visits = op.input("visits", flow, JsonLinesSource("/data/visits/*.jsonl"))
    old = op.input("old", flow, TextSource(["/data/2020", "s3://me:secret@bucket/2021"]))
    both = op.merge("both", visits, old)
    op.output("files", both, ParquetSink("/data/out"))
    op.output("topic", both, KafkaSink("one:9092,two:9092", "out"))
    return flow


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class Sent:
    """Events of the visits flow with a client that writes them to a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "events.jsonl"
        client = OpenLineageClient(
            transport=FileTransport(FileConfig(str(self._file), append=True)),
        )
        self.events = OpenLineageEvents(visits_flow(), "reports", client)

    def read(self) -> list[dict[str, Any]]:
        return read(self._file)

    def kinds(self) -> list[str]:
        return [event["eventType"] for event in self.read()]


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    return Sent(tmp_path)


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


def rows(datasets: list[dict[str, Any]], facets: str, facet: str) -> dict[str, int | None]:
    return {one["name"]: one[facets].get(facet, {}).get("rowCount") for one in datasets}


@pytest.fixture
def completed(sent: Sent) -> list[dict[str, Any]]:
    """The events of a run that has counted items."""
    with sent.events as events:
        events.end(Summary("visits", "batch", counts=COUNTS))
    return sent.read()


def test_a_run_starts_and_completes_with_one_id(
    sent: Sent, completed: list[dict[str, Any]]
) -> None:
    start, end = completed
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"] == sent.events.run_id
    assert str(UUID(sent.events.run_id)) == sent.events.run_id
    assert start["job"] == end["job"] == {"namespace": "reports", "name": "visits", "facets": {}}
    assert start["eventTime"] < end["eventTime"]
    assert start["producer"] == "pkg:pypi/flow-windows"


def test_every_event_names_inputs_and_outputs(completed: list[dict[str, Any]]) -> None:
    inputs = [("file", "/data/visits"), ("file", "/data/2020"), ("s3://bucket", "2021")]
    for event in completed:
        assert names(event["inputs"]) == inputs
        assert names(event["outputs"]) == [("file", "/data/out"), ("kafka://one:9092", "out")]


def test_the_end_has_row_counts_where_a_step_has_one_data_set(
    completed: list[dict[str, Any]],
) -> None:
    start, end = completed
    unknown = {"/data/visits": None, "/data/2020": None, "2021": None}
    assert rows(start["inputs"], "inputFacets", "inputStatistics") == unknown
    assert rows(end["inputs"], "inputFacets", "inputStatistics") == {**unknown, "/data/visits": 7}
    assert rows(end["outputs"], "outputFacets", "outputStatistics") == {"/data/out": 6, "out": 4}


def test_an_error_of_the_run_is_a_failure_without_key_and_item(sent: Sent) -> None:
    error = StepError("both", "the mapper raised ValueError", key="ann", item="{'card': 4711}")
    with pytest.raises(StepError), sent.events:
        raise error
    start, fail = sent.read()
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    message = fail["run"]["facets"]["errorMessage"]
    assert message["message"] == "StepError: step 'both': the mapper raised ValueError"
    assert message["programmingLanguage"] == "PYTHON"
    assert names(fail["outputs"]) == names(start["outputs"])


def test_no_event_has_a_secret(sent: Sent) -> None:
    with pytest.raises(SinkError), sent.events:
        raise SinkError("s3://ann:hunter2@bucket/out cannot be written to")
    text = json.dumps(sent.read())
    assert "s3://bucket/out cannot be written to" in text
    assert not re.search("secret|hunter2", text)


@pytest.mark.parametrize(
    ("summary", "kind"),
    [
        (Summary("visits", "streaming", stopped=True), "COMPLETE"),
        (Summary("visits", "batch", stopped=True), "ABORT"),
        (Summary("visits", "streaming", aborted=True), "ABORT"),
    ],
)
def test_a_run_that_was_stopped_completes_if_it_has_written(
    sent: Sent, summary: Summary, kind: str
) -> None:
    with sent.events as events:
        events.end(summary)
    assert sent.kinds() == ["START", kind]


def test_an_interrupt_aborts_the_run(sent: Sent) -> None:
    with pytest.raises(KeyboardInterrupt), sent.events:
        raise KeyboardInterrupt
    assert sent.kinds() == ["START", "ABORT"]


def test_a_run_has_one_end_and_the_next_run_an_id_of_its_own(sent: Sent) -> None:
    def fail_later() -> None:
        with sent.events as events:
            events.end(Summary("visits", "batch"))
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        fail_later()
    with sent.events:
        pass
    assert sent.kinds() == ["START", "COMPLETE"] * 2
    assert len({event["run"]["runId"] for event in sent.read()}) == 2
    with pytest.raises(FlowBuildError, match="'visits' has no run to end"):
        sent.events.end(Summary("visits", "batch"))


class _Down(Transport):
    kind = "down"

    def emit(self, event: Any) -> Any:
        raise ConnectionError("http://me:secret@lineage:5000 does not answer")


def warnings_of_a_run(
    caplog: pytest.LogCaptureFixture, client: OpenLineageClient | None = None
) -> list[str]:
    with (
        caplog.at_level(logging.WARNING, "flow"),
        OpenLineageEvents(visits_flow(), client=client) as events,
    ):
        events.end(Summary("visits", "batch"))
    return [record.getMessage() for record in caplog.records if record.name == "flow"]


def test_a_transport_that_fails_is_logged_once_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert warnings_of_a_run(caplog, OpenLineageClient(transport=_Down())) == [
        "flow 'visits': OpenLineage: event START failed, the run continues: "
        "ConnectionError: http://lineage:5000 does not answer"
    ]


def test_the_environment_configures_the_client_and_the_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "from_environment")
    with OpenLineageEvents(visits_flow()) as events:
        events.end(Summary("visits", "batch"))
    assert [event["job"]["namespace"] for event in read(file)] == ["from_environment"] * 2


def test_a_client_that_cannot_be_made_leaves_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps({"type": "pigeon"}))
    (message,) = warnings_of_a_run(caplog)
    assert "the client failed, the run continues" in message


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'flow-windows\[openlineage\]'"):
        OpenLineageEvents(visits_flow())
