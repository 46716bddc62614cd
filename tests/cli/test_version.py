"""The option ``--version`` of each command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

import flow
import flow.prepare
import flow.visualize
import recovery.cli
from flow.cli import run_command
from flow.cli.doctor import command as doctor

COMMANDS = [
    run_command.main,
    flow.visualize.main,
    flow.prepare.main,
    doctor.main,
    recovery.cli.main,
]


@pytest.mark.parametrize("main", COMMANDS, ids=lambda main: str(main.__module__))
def test_a_command_prints_the_version(
    main: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr() == (f"flow-windows {flow.__version__}\n", "")


def test_the_version_is_that_of_a_release_or_of_its_development() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", flow.__version__)
