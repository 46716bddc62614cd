"""A history, then live data, as one source."""

from __future__ import annotations

from flow.connectors.then.source import Then
from flow.connectors.then.start_rules import AfterOffsets, FromTime, StartRule

__all__ = ["AfterOffsets", "FromTime", "StartRule", "Then"]
