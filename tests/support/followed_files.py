"""A flow that follows files while the log of their list is compacted early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink, TextSource
from flow.connectors.files.reading import file_list
from flow.engine.feed import retained_offsets
from recovery import RecoveryConfig

KEPT = 2
LINE_BYTES = len("line 00\n")
"""Bytes of a file, and of an epoch."""


def compact_at_once(set_attribute: Callable[[Any, str, int], object]) -> None:
    """Lower the limits of compaction, so that a few epochs compact the log of the list."""
    set_attribute(file_list, "LEAST_FILES", 2)
    set_attribute(retained_offsets, "RELEASE_EPOCHS", 1)


def numbered(count: int | None, line: str) -> tuple[int, dict[str, Any]]:
    return (count or 0) + 1, {"line": line, "count": (count or 0) + 1}


def count_lines(home: Path, spark: SparkSession | None = None, order: Any = "sequence") -> None:
    """Count how often each line has come, a file an epoch, until there is nothing new."""
    flow = Dataflow("followed")
    source = TextSource(home / "in", bytes_per_epoch=LINE_BYTES, follow=True, order=order)
    keyed = op.key_on("by_line", op.input("lines", flow, source), lambda line: line)
    rows = op.map("row", op.stateful_map("count", keyed, numbered), lambda pair: pair[1])
    op.output("out", rows, JsonLinesSink(home / "out"))
    recovery = RecoveryConfig(home / "checkpoint", keep_epochs=KEPT)
    options: dict[str, Any] = {"shards": 1, "partitions": 1, "trigger": "available"}
    run(flow, spark=spark, recovery=recovery, drain=False, **options)
