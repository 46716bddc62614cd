"""The option ``--version`` of each command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

import flow
import flow.prepare
import flow.visualize
import recovery.__main__
from tests.support.commandline import doctor_main, run_main

COMMANDS = {
    "run": run_main,
    "visualize": flow.visualize.main,
    "prepare": flow.prepare.main,
    "doctor": doctor_main,
    "recovery": recovery.__main__.main,
}


@pytest.mark.parametrize("main", COMMANDS.values(), ids=COMMANDS)
def test_a_command_prints_the_version(
    main: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr() == (f"flow-windows {flow.__version__}\n", "")


def test_the_version_is_that_of_a_release_or_of_its_development() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", flow.__version__)
