"""What all tests of file sources have in common."""

from __future__ import annotations

import pytest

from flow.connectors.files import lines, parquet_source


@pytest.fixture(autouse=True)
def cut_even_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LEAST_SPLIT", 1)
    monkeypatch.setattr(parquet_source, "LEAST_SPLIT", 1)
