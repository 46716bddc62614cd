"""Notebooks: those of the project run without an error, and cells that run a flow."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, nbformat.NO_CONVERT)


def client_of(notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> NotebookClient:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources)


def data(notebook: Any) -> Iterator[dict[str, str]]:
    """Yield the forms of each shown object."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "data" in output:
                yield output["data"]


def test_a_notebook_has_no_outputs_in_the_repository() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_flow", "windows_over_a_data_frame"]
    for cell in [cell for path in NOTEBOOKS for cell in read(path).cells]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "plots"),
    [
        ("first_flow", 0),
        pytest.param("windows_over_a_data_frame", 2, marks=pytest.mark.extended),
    ],
)
def test_a_notebook_runs(
    name: str, plots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = read(ROOT / "notebooks" / f"{name}.ipynb")
    client_of(notebook, tmp_path, monkeypatch).execute()
    shown = list(data(notebook))
    assert any("```mermaid" in forms.get("text/markdown", "") for forms in shown), "the graph"
    assert any("items/s (batch)" in forms.get("text/html", "") for forms in shown), "the summary"
    assert sum("image/png" in forms for forms in shown) == plots


RUNNING = """
import time
from pathlib import Path
import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import TextSink, TextSource

def slow(line):
    Path("started").touch()
    time.sleep({seconds})
    return line

Path("in.txt").write_text("one\\n")
graph = Dataflow("interrupted")
lines = op.input("in", graph, TextSource("in.txt", follow={follow}))
op.output("out", op.map("slow", lines, slow), TextSink("out"))
summary = run(graph, master="local[2]")
print("stopped:", summary.stopped, "epochs:", summary.epochs)
"""


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.parametrize(
    ("follow", "seconds", "result"),
    [(True, 0.1, "stopped: True epochs: 1"), (False, 200, "stopped: True epochs: 0")],
    ids=["stream", "batch"],
)
def test_an_interrupted_cell_ends_without_a_trace(
    follow: bool, seconds: float, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [RUNNING.format(follow=follow, seconds=seconds), "1 + 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    client = client_of(notebook, tmp_path, monkeypatch)

    def interrupt() -> None:
        until = time.monotonic() + 200
        begun = "out/epoch=*" if follow else "started"
        while not list(tmp_path.glob(begun)) and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(client.km.provisioner.process.pid, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    client.execute()
    interrupting.join()
    printed = "".join(one.get("text", "") for one in notebook.cells[0].outputs)
    assert printed.splitlines()[-1] == result
    (line,) = [forms["text/plain"] for forms in data(notebook) if "text/html" in forms]
    assert line.startswith(f"stopped: {'1 epoch' if follow else '0 epochs'} in ")
    assert [one["output_type"] for one in notebook.cells[0].outputs].count("error") == 0
