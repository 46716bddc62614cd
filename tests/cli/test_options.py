"""Options of the command line, and its logging."""

from __future__ import annotations

import logging
import re
from collections import Counter

import pyspark
import pytest

from flow import EpochReport
from flow.config.flow_config import FIELDS
from recovery import RecoveryConfig
from tests.support.commandline import ErrorOutput, Runs, run_main, without_other_handlers


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("--recovery=state/mine", "recovery", RecoveryConfig("state/mine")),
        ("--master=local[3]", "master", "local[3]"),
        ("--drain", "drain", True),
        ("--no-drain", "drain", False),
        ("--conf=spark.a=b=c", "conf", {"spark.a": "b=c"}),
        ("--conf=spark.a=", "conf", {"spark.a": ""}),
        ("--shards=64", "shards", 64),
        ("--py-files=mine.py", "py_files", ("mine.py",)),
        ("--no-speedups", "speedups", False),
        ("--web", "web", "127.0.0.1:4041"),
        ("--web=127.0.0.1:0", "web", "127.0.0.1:0"),
    ],
)
def test_an_option_reaches_the_run(runs: Runs, option: str, name: str, value: object) -> None:
    assert run_main(["mine:flow", option]) == 0
    assert runs.arguments[name] == value


def test_settings_add_up_and_the_last_of_a_name_counts(runs: Runs) -> None:
    run_main(["mine:flow", "--conf", "spark.a=1", "--conf", "spark.b=2", "--conf", "spark.a=3"])
    assert runs.arguments["conf"] == {"spark.a": "3", "spark.b": "2"}


def test_what_is_not_given_is_what_run_does_by_itself(runs: Runs) -> None:
    run_main(["mine:flow"])
    assert set(runs.arguments) == {"flow", "on_epoch", "on_start", "stop"}
    assert runs.arguments["flow"].flow_id == "mine"


def test_an_option_has_priority_over_its_variable(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_SHARDS", "8")
    monkeypatch.setenv("FLOW_PARTITIONS", "8")
    monkeypatch.setenv("FLOW_RECOVERY", "state/mine")
    run_main(["mine:flow", "--shards=4"])
    assert (runs.arguments["shards"], runs.arguments["partitions"]) == (4, 8)
    assert runs.arguments["recovery"] == RecoveryConfig("state/mine")


def test_a_wrong_variable_is_named_before_the_module_is_loaded(
    runs: Runs, error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_SHARDS", "none")
    assert error_output(2, "no_such_module:flow") == (
        "error: FLOW_SHARDS must be a whole number of at least 1, got 'none' (--help says more)\n"
    )


def test_show_config_prints_values_with_their_origins_and_advice_and_runs_nothing(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_MASTER", "local[1]")
    arguments = ["mine:flow", "--show-config", "--shards=4", "--partitions=8"]
    assert run_main([*arguments, "--conf=spark.a=red\x1b[31m", "--conf=spark.my.password=1"]) == 0
    rows = capsys.readouterr().out.splitlines()
    shown = {row.split("  ")[0]: row.split() for row in rows}
    assert shown["master"] == ["master", "local[1]", "FLOW_MASTER"]
    assert shown["shards"] == ["shards", "4", "--shards"]
    assert shown["log_level"] == ["log_level", "WARN", "default"]
    assert shown["conf spark.a"] == ["conf", "spark.a", "red\\x1b[31m", "--conf", "spark.a"]
    assert shown["conf spark.my.password"][2] == "(hidden)"
    assert len([row for row in rows if row.startswith("warning: partitions 8 (--part")]) == 1
    assert len([row for row in rows if row.startswith("warning: shards 4 (--shards): fewer")]) == 1
    assert runs.arguments == {}


SUMMARY = """\
step  in  out  keys
in          1
out
mine: 1 epoch, 1 items in 1.0 s, 1 items/s (batch)
"""


def test_the_summary_is_printed_in_the_end(runs: Runs, error_output: ErrorOutput) -> None:
    assert error_output(0, "mine:flow").endswith(SUMMARY)


def test_progress_is_logged_where_there_is_no_terminal(
    runs: Runs, error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_other_handlers(monkeypatch)

    def run() -> None:
        runs.arguments["on_start"]()
        runs.arguments["on_epoch"](EpochReport(4, Counter({("in", "out"): 3})))

    runs.action = run
    lines = error_output(0, "mine:flow").splitlines()[:3]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO ", line) for line in lines)
    shown = [line.partition(" INFO ")[2] for line in lines]
    assert shown == [f"starting Spark {pyspark.__version__}", "reading in", "epoch 4 | 3 items in"]


def test_quiet_leaves_out_progress_but_no_warning_and_no_summary(
    runs: Runs, error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_other_handlers(monkeypatch)
    runs.action = lambda: logging.getLogger("flow").warning("dropped something")
    shown = error_output(0, "mine:flow", "--quiet")
    assert "on_epoch" not in runs.arguments
    assert re.fullmatch(r"\S+Z WARNING dropped something\n" + re.escape(SUMMARY), shown)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--colour", "unrecognized arguments: --colour"),
        ("--rec=x", "unrecognized arguments: --rec=x"),
        ("--conf=spark.a", "--conf: 'spark.a' is no setting: write it"),
        ("--conf==b", "--conf: '=b' is no setting: write it as "),
        ("--trigger=soon", "--trigger 'soon' is not a duration: write it as a timedelta"),
        ("--recovery=", "--recovery='': RecoveryConfig needs a directory's path, got an empty one"),
        ("--shards=0", "--shards must be a whole number of at least 1, got '0'"),
        (
            "--driver-memory=4 GB",
            "--driver-memory must be a number and a unit of k, m, g or t, such as '4g' or '512m', "
            "got '4 GB'",
        ),
    ],
)
def test_a_wrong_option_is_one_clear_message(
    runs: Runs, error_output: ErrorOutput, option: str, message: str
) -> None:
    error = error_output(2, "mine:flow", option)
    assert error.startswith(f"error: {message}")
    assert error.endswith("(--help says more)\n")
    assert error.count("\n") == 1
    assert runs.arguments == {}


def test_a_flow_is_required(error_output: ErrorOutput) -> None:
    assert error_output(2) == (
        "error: the following arguments are required: MODULE:FLOW (--help says more)\n"
    )


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run_main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    options = [field.option for field in FIELDS]
    others = ["--no-drain", "--quiet", "--show-config", "MODULE:FLOW"]
    assert [option for option in (*options, *others) if option not in shown] == []


# --- what is logged, and where ---


def test_a_module_that_sets_up_logging_has_its_way_and_logging_is_left_as_it_was(
    runs: Runs, error_output: ErrorOutput
) -> None:
    own: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: own.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("flow")
    logger.addHandler(handler)
    runs.action = lambda: logger.info("epoch 1")
    before = list(logger.handlers), logger.level
    try:
        assert error_output(0, "mine:flow", "--quiet") == SUMMARY
        assert (list(logger.handlers), logger.level) == before
    finally:
        logger.removeHandler(handler)
    assert own == ["epoch 1"]
    before = list(logger.handlers), logger.level
    run_main(["mine:flow"])
    assert (list(logger.handlers), logger.level) == before
