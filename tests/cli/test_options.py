"""Options of the command line, and its logging."""

from __future__ import annotations

import inspect
import logging
import re
from collections import Counter

import pytest

from flow import EpochReport
from flow.cli.run_command import main
from flow.running import run as run_function
from recovery import RecoveryConfig
from tests.support.commandline import Runs, error_output, without_other_handlers


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("--recovery=state/mine", "recovery", RecoveryConfig("state/mine")),
        ("--master=local[3]", "master", "local[3]"),
        ("--trigger=1s", "trigger", "1s"),
        ("--trigger=available", "trigger", "available"),
        ("--drain", "drain", True),
        ("--no-drain", "drain", False),
        ("--engine=batch", "engine", "batch"),
        ("--engine=streaming", "engine", "streaming"),
        ("--engine=auto", "engine", "auto"),
        ("--conf=spark.a=b", "conf", {"spark.a": "b"}),
        ("--conf=spark.a=b=c", "conf", {"spark.a": "b=c"}),
        ("--conf=spark.a=", "conf", {"spark.a": ""}),
        ("--log-level=ERROR", "log_level", "ERROR"),
        ("--shards=64", "shards", 64),
        ("--partitions=3", "partitions", 3),
        ("--py-files=mine.py", "py_files", ("mine.py",)),
    ],
)
def test_an_option_reaches_the_run(runs: Runs, option: str, name: str, value: object) -> None:
    assert main(["mine:flow", option]) == 0
    assert runs.arguments[name] == value


def test_settings_add_up_and_the_last_of_a_name_counts(runs: Runs) -> None:
    main(["mine:flow", "--conf", "spark.a=1", "--conf", "spark.b=2", "--conf", "spark.a=3"])
    assert runs.arguments["conf"] == {"spark.a": "3", "spark.b": "2"}


def test_what_is_not_given_is_what_run_does_by_itself(runs: Runs) -> None:
    main(["mine:flow"])
    given = runs.arguments
    own = {one.name: one.default for one in inspect.signature(run_function).parameters.values()}
    by_itself = {name: own[name] or {} if name == "conf" else own[name] for name in own}
    for name in set(given) - {"flow", "on_epoch", "stop"}:
        assert given[name] == by_itself[name], name
    assert given["flow"].flow_id == "mine"


def test_the_summary_is_printed_in_the_end(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_output(capsys, 0, "mine:flow").splitlines() == [
        "step  in  out  keys",
        "in          1",
        "out",
        "mine: 1 epoch, 1 items in 1.0 s, 1 items/s (batch)",
    ]


def test_progress_is_logged_where_there_is_no_terminal(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_other_handlers(monkeypatch)
    runs.action = lambda: runs.arguments["on_epoch"](EpochReport(4, Counter({("in", "out"): 3})))
    first = error_output(capsys, 0, "mine:flow").splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO epoch 4 \| 3 items in", first)


def test_quiet_leaves_out_progress_and_summary_but_no_warning(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_other_handlers(monkeypatch)
    runs.action = lambda: logging.getLogger("flow").warning("dropped something")
    shown = error_output(capsys, 0, "mine:flow", "--quiet")
    assert "on_epoch" not in runs.arguments
    assert re.fullmatch(r"\S+Z WARNING dropped something\n", shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: MODULE:FLOW"),
        (["mine:flow", "--colour"], "unrecognized arguments: --colour"),
        (["mine:flow", "--rec=x"], "unrecognized arguments: --rec=x"),
        (["mine:flow", "--conf", "spark.a"], "argument --conf: 'spark.a' is no setting: write it"),
        (["mine:flow", "--conf", "=b"], "argument --conf: '=b' is no setting: write it as "),
        (
            ["mine:flow", "--trigger", "soon"],
            "argument --trigger: trigger 'soon' is not a duration: write it as a timedelta",
        ),
        (
            ["mine:flow", "--trigger=-1s"],
            "argument --trigger: must not be negative, got '-1s'",
        ),
        (["mine:flow", "--engine", "fast"], "argument --engine: invalid choice: 'fast'"),
        (
            ["mine:flow", "--recovery", ""],
            "argument --recovery: RecoveryConfig needs a directory's path, got an empty one",
        ),
        (
            ["mine:flow", "--shards", "0"],
            "argument --shards: must be a whole number of at least 1, got '0'",
        ),
        (
            ["mine:flow", "--partitions", "two"],
            "argument --partitions: must be a whole number of at least 1, got 'two'",
        ),
    ],
)
def test_a_wrong_option_is_one_clear_message(
    runs: Runs, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    error = error_output(capsys, 2, *arguments)
    assert error.startswith(f"error: {message}")
    assert error.endswith("(--help says more)\n")
    assert error.count("\n") == 1
    assert runs.arguments == {}


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--recovery", "--master", "--trigger", "--drain", "--no-drain", "--engine"):
        assert option in shown
    for option in ("--conf", "--log-level", "--shards", "--partitions", "--quiet", "MODULE:FLOW"):
        assert option in shown


# --- what is logged, and where ---


def test_a_module_that_sets_up_logging_has_its_way(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    own: list[str] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            own.append(record.getMessage())

    handler = Own()
    logging.getLogger("flow").addHandler(handler)
    runs.action = lambda: logging.getLogger("flow").info("epoch 1")
    try:
        assert error_output(capsys, 0, "mine:flow", "--quiet") == ""
    finally:
        logging.getLogger("flow").removeHandler(handler)
    assert own == ["epoch 1"]


def test_logging_is_left_as_it_was(runs: Runs) -> None:
    logger = logging.getLogger("flow")
    before = list(logger.handlers), logger.level
    main(["mine:flow"])
    assert (list(logger.handlers), logger.level) == before
