"""Types of users' programs: README and examples pass strict mypy and strict basedpyright.

They are checked as a user would: as programs beside the installed packages, by the checkers'
strictest settings, with no annotation that serves the checker alone. ``dev.py check`` runs them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(path for path in ROOT.glob("examples/*.py") if path.name != "__init__.py")
UNTYPED = ("pyarrow", "pandas", "confluent_kafka", "deltalake", "duckdb", "pyiceberg", "redis")
"""Libraries that ship no types, or not all: a program that imports one has values of no known type.

For such a program the rules about unknown types, which concern that library alone, are off.
"""

SHORT = """
import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

clock = win.EventClock("at", "10s")
later = win.EventClock(lambda visit: visit["at"], wait_for_system_duration="1m")
graph = Dataflow("typed")
visits = op.input("visits", graph, TestingSource([]))
by_user = op.key_on("by_user", visits, lambda visit: visit["user"])
large = op.filter_value("large", by_user, lambda visit: visit["amount"] > 10)
hourly = win.aggregate_window(
    "hourly", large, clock, win.TumblingWindower("1h"), n=win.Count(), total=win.Sum("amount")
)
lists = win.collect_window("lists", by_user, later, win.SessionWindower("30m"))
folds = win.fold_window(
    "folds", by_user, clock, win.TumblingWindower("1d"), int, lambda n, visit: n + visit["amount"]
)
lines = op.map("line", hourly.down, lambda item: f"{item[0]}: {item[1][1]}")
op.output("out", lines, TestingSink([]))
op.output("late", hourly.late, TestingSink([]))
driver = TestDriver(graph)
driver.send("visits", [{"user": "ann", "at": 5, "amount": 20}])
print(driver.take("out"))
"""

MYPY = f"""
[mypy]
strict = True
follow_imports = silent
cache_dir = {ROOT / ".mypy_cache/programs"}
[mypy-pyarrow.*,pandas.*,confluent_kafka.*,deltalake.*,duckdb.*,pyiceberg.*,redis.*]
ignore_missing_imports = True
follow_imports = skip
"""
PYRIGHT = {
    "typeCheckingMode": "strict",
    "extraPaths": [str(ROOT)],
    "useLibraryCodeForTypes": False,
    "reportMissingTypeStubs": False,
    "reportMissingModuleSource": False,
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs: the examples, the Python blocks of README, and a short one."""
    folder = tmp_path_factory.mktemp("programs")
    for path in EXAMPLES:
        (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(import flow.*?)^```", readme, re.M | re.S)
    assert blocks, "README has a program"
    for number, block in enumerate(blocks):
        (folder / f"readme_{number}.py").write_text(block, "utf-8")
    (folder / "short.py").write_text(SHORT, "utf-8")
    return folder


def check(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.extended
def test_programs_pass_strict_mypy(programs: Path) -> None:
    (programs / "mypy.ini").write_text(MYPY, "utf-8")
    names = sorted(path.name for path in programs.glob("*.py"))
    done = check(programs, "mypy", "--config-file=mypy.ini", *names)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.extended
def test_programs_pass_strict_basedpyright(programs: Path) -> None:
    (programs / "pyrightconfig.json").write_text(json.dumps(PYRIGHT), "utf-8")
    python = ["--pythonpath", sys.executable]
    report = json.loads(check(programs, "basedpyright", "--outputjson", *python, ".").stdout)
    assert report["summary"]["filesAnalyzed"] >= len(EXAMPLES)
    problems = [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in report["generalDiagnostics"]
        if one["severity"] == "error" and not is_of_a_library(one)
    ]
    assert problems == [], "\n".join(problems)


def is_of_a_library(problem: dict[str, str]) -> bool:
    rule = problem.get("rule", "")
    if not rule.startswith("reportUnknown") and rule != "reportPrivateImportUsage":
        return False
    source = Path(problem["file"]).read_text("utf-8")
    return any(re.search(rf"^(?:import|from) {name}", source, re.M) for name in UNTYPED)
