"""The command `python -m flow.doctor`: its lines, its exit codes, and machines that lack much."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import flow.doctor.__main__ as doctor
from flow.config.flow_config import FIELDS
from flow.doctor.__main__ import ITEMS, small_flow
from flow.doctor.findings import Finding, ok, problem, warning
from flow.testing import TestDriver
from tests.support.commandline import doctor_main

Capture = pytest.CaptureFixture[str]
LINE = re.compile(r"(ok|warning|problem) +\S.*")


def run_doctor(*arguments: str, program: str = "", **environ: str) -> tuple[int, list[str], str]:
    """Run the doctor in a process of its own; return exit code, lines, and standard error."""
    start = "from tests.support.commandline import doctor_main as main; "
    start += f"sys.exit(main({list(arguments)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}\n{start}"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts one check in the place of all."""
    return lambda check: monkeypatch.setattr(doctor, "_checks", lambda *_: [("Java", check)])


@pytest.mark.parametrize(
    ("findings", "code", "last"),
    [
        ([ok("Java", "17")], 0, "0 problems, 0 warnings"),
        ([ok("Java", "17"), warning("Java", "old")], 0, "0 problems, 1 warning"),
        ([problem("Java", "none"), warning("Java", "old")], 1, "1 problem, 1 warning"),
    ],
)
def test_a_problem_alone_gives_exit_code_1(
    findings: list[Finding],
    code: int,
    last: str,
    checks: Callable[..., None],
    capsys: Capture,
) -> None:
    checks(lambda: findings)
    assert doctor_main(["--no-spark"]) == code
    assert capsys.readouterr().out.splitlines() == [each.line() for each in findings] + [last]


def test_a_check_that_fails_is_a_problem_of_one_line_without_a_trace(
    checks: Callable[..., None], capsys: Capture
) -> None:
    def failing() -> Iterator[Finding]:
        yield ok("Java", "there")
        raise OSError("red \x1b[31m\nline")

    checks(failing)
    assert doctor_main(["--no-spark"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == (
        "problem  Java               the check itself failed: OSError: red \\x1b[31m line"
    )
    assert err == ""


def test_spark_is_not_started_after_a_problem_that_it_would_meet(
    checks: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    checks(lambda: [problem("Java", "none")])
    monkeypatch.setattr(doctor, "spark_findings", lambda _: pytest.fail("Spark was started"))
    assert doctor_main([]) == 1
    assert "warning  Spark              not started, because of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--colour"], "unrecognized arguments: --colour (--help says more)"),
        (["--shards=0"], "--shards must be a whole number of at least 1, got '0'"),
        (["--kafka-property=a"], "--kafka-property: 'a' is no setting: write it as spark.some"),
    ],
)
def test_a_wrong_option_gives_exit_code_2(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    assert doctor_main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_wrong_variable_gives_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("FLOW_DRAIN", "yes")
    assert doctor_main([]) == 2
    assert capsys.readouterr().err == "error: FLOW_DRAIN must be 'on' or 'off', got 'yes'\n"


def test_help_names_every_field(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        doctor_main(["--help"])
    shown = capsys.readouterr().out
    assert [field.option for field in FIELDS if field.option not in shown] == []


def test_without_java_and_pyspark_all_other_checks_run() -> None:
    code, lines, error = run_doctor(
        program="sys.modules['pyspark'] = None", JAVA_HOME="/no/java", PATH="/no/path"
    )
    assert (code, error) == (1, "")
    assert [line for line in lines[:-1] if not LINE.fullmatch(line)] == []
    text = "\n".join(lines)
    assert "problem  Java               Spark needs Java 17 or newer and none was found" in text
    assert "problem  PySpark            PySpark cannot be imported" in text
    assert "warning  Spark              not started" in text
    assert "ok       Temporary files" in text


def test_the_small_flow_writes_all_its_items() -> None:
    with TestDriver(small_flow()) as driver:
        driver.end()
        assert len(driver.take("out")) in (0, ITEMS)


def test_a_small_flow_runs_on_a_session_that_is_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    stops: list[bool] = []
    monkeypatch.setattr(spark, "stop", lambda: stops.append(True))
    assert doctor_main(["--recovery", str(tmp_path / "state")]) == 0
    output = capsys.readouterr()
    *_, started, session, ran, _ = output.out.splitlines()
    assert re.fullmatch(r"ok +Session +JVM in reach; all settings may be set", session)
    assert re.match(r"(ok|warning) +Spark +version [\d.]+ starts in [\d.]+ s", started)
    assert re.fullmatch(r"ok +Spark +a flow of 100 items \(\w+\) ran in [\d.]+ s", ran)
    assert (output.err, stops) == ("", [True])
    assert not (tmp_path / "state").exists()
