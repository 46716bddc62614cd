"""Small splits for all tests of file sources."""

from __future__ import annotations

import pytest

from flow.connectors.files import line_ranges, parquet_source


@pytest.fixture(autouse=True)
def cut_even_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_ranges, "LEAST_SPLIT", 1)
    monkeypatch.setattr(parquet_source, "LEAST_SPLIT", 1)
