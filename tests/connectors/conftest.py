"""Fixtures that the tests of connectors share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases import Postgres, Sqlite, TestDatabase


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    """An empty database of each kind."""
    return Sqlite(tmp_path / "out.db") if request.param == "sqlite" else Postgres()
