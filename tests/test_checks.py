from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flow.checks import check_choice, check_flag, check_whole
from flow.errors import FlowBuildError, FlowTypeError


@pytest.mark.parametrize(
    ("check", "kind", "problem"),
    [
        (
            lambda: check_choice("a", "x", ("b", "c")),
            FlowBuildError,
            "a must be 'b' or 'c', got 'x'",
        ),
        (
            lambda: check_choice("A: b", ["c"], ("c", "d", "e")),
            FlowBuildError,
            "A: b must be 'c', 'd' or 'e', got ['c']",
        ),
        (
            lambda: check_choice("a", np.array(["b", "c"]), ("b", "c")),
            FlowBuildError,
            "a must be 'b' or 'c', got array(['b', 'c'], dtype='<U1')",
        ),
        (
            lambda: check_whole("n", 1, 2),
            FlowBuildError,
            "n must be a whole number of at least 2, got 1",
        ),
        (
            lambda: check_whole("n", True, 1),
            FlowTypeError,
            "n must be a whole number of at least 1, got True",
        ),
        (
            lambda: check_whole("n", 1.5, 1),
            FlowTypeError,
            "n must be a whole number of at least 1, got 1.5",
        ),
        (lambda: check_flag("f", 1), FlowTypeError, "f must be True or False, got int 1"),
    ],
)
def test_an_invalid_argument_is_named_with_the_rule_and_the_value(
    check: Callable[[], None], kind: type[FlowBuildError], problem: str
) -> None:
    with pytest.raises(FlowBuildError) as error:
        check()
    assert (type(error.value), str(error.value)) == (kind, problem)


def test_a_valid_argument_raises_nothing() -> None:
    check_choice("a", "b", ("b", "c"))
    check_whole("n", 1, 1)
    check_flag("f", False)
