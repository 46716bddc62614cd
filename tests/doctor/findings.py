"""Comparison of the doctor's findings with levels and texts."""

from __future__ import annotations

from collections.abc import Iterable

from flow.doctor.findings import Finding, Level

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM


def is_last(findings: Iterable[Finding], level: Level, *parts: str, end: str = "") -> bool:
    """Return True if the last finding has a level and a text.

    Args:
        findings: the findings.
        level: the level.
        parts: texts in the finding's text; the text begins with the first one.
        end: the end of the text.
    """
    *_, found = findings
    assert found.level is level, found
    assert found.text.startswith(parts[:1] or ""), found
    assert all(part in found.text for part in parts), found
    assert found.text.endswith(end), found
    return True
