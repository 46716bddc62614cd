"""Kinds of tables for the tests that each of them passes."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support import delta, iceberg


@pytest.fixture(params=[delta, iceberg], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> ModuleType:
    """Functions of a kind of tables, under the same names for each."""
    kind: ModuleType = request.param
    pytest.importorskip(kind.PACKAGE)
    return kind
