from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flow.checks import check_choice, check_flag, check_whole
from flow.errors import FlowBuildError, FlowTypeError

CHOICE, WHOLE = "a must be 'b' or 'c'", "n must be a whole number of at least"
THREE, ARRAY = ("c", "d", "e"), np.array(["b", "c"])


@pytest.mark.parametrize(
    ("check", "arguments", "kind", "problem"),
    [
        (check_choice, ("a", "x", ("b", "c")), FlowBuildError, f"{CHOICE}, got 'x'"),
        (check_choice, ("a", ["c"], ("b", "c")), FlowBuildError, f"{CHOICE}, got ['c']"),
        (
            check_choice,
            ("a", ARRAY, ("b", "c")),
            FlowBuildError,
            f"{CHOICE}, got array(['b', 'c'], dtype='<U1')",
        ),
        (check_choice, ("A: b", 1, THREE), FlowBuildError, "A: b must be 'c', 'd' or 'e', got 1"),
        (check_whole, ("n", 1, 2), FlowBuildError, f"{WHOLE} 2, got 1"),
        (check_whole, ("n", True, 1), FlowTypeError, f"{WHOLE} 1, got True"),
        (check_whole, ("n", 1.5, 1), FlowTypeError, f"{WHOLE} 1, got 1.5"),
        (check_flag, ("f", 1), FlowTypeError, "f must be True or False, got int 1"),
    ],
)
def test_an_invalid_argument_is_named_with_the_rule_and_the_value(
    check: Callable[..., None],
    arguments: tuple[object, ...],
    kind: type[FlowBuildError],
    problem: str,
) -> None:
    with pytest.raises(FlowBuildError) as error:
        check(*arguments)
    assert (type(error.value), str(error.value)) == (kind, problem)


def test_a_valid_argument_raises_nothing() -> None:
    check_choice("a", "b", ("b", "c"))
    check_whole("n", 1, 1)
    check_flag("f", False)
