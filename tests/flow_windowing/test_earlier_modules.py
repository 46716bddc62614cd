"""Classes that have moved, in pickles of earlier versions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from flow.pickles import load_pickle
from flow_windowing import Collect, First, Max, TopK
from flow_windowing.aggregates.exact_totals import Floats


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("kept_aggregates", First),
        ("kept_aggregates", Max),
        ("kept_aggregates", Collect),
        ("kept_aggregates", TopK),
        ("exact_totals", Floats),
    ],
)
def test_a_class_is_found_under_the_module_it_had(module: str, found: Any) -> None:
    name = f"flow_windowing.{module}\n{found.__name__}\n".encode()
    assert load_pickle(pickle.GLOBAL + name + pickle.STOP) is found
