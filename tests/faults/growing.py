"""A flow whose state grows by a quarter of a megabyte an epoch: ``tests.faults.growing:flow``."""

from __future__ import annotations

import os
import random
from pathlib import Path

import flow.operators as op
from flow import Dataflow
from flow.connectors.files import JsonLinesSink
from flow.testing import TestingSource

EPOCHS, ITEMS, KEYS = 12, 4, 4
BYTES = 60_000


def blob(number: int) -> tuple[str, bytes]:
    return f"key {number % KEYS}", random.Random(number).randbytes(BYTES)


def keep(blobs: list[bytes] | None, new: bytes) -> tuple[list[bytes], int]:
    blobs = [*(blobs or []), new]
    return blobs, sum(map(sum, blobs))


def record(pair: tuple[str, int]) -> dict[str, object]:
    return {"key": pair[0], "sum": pair[1]}


def make_flow(out: Path) -> Dataflow:
    """A new flow; what it writes tells of all the state that it has kept."""
    flow = Dataflow("growing")
    numbers = op.input("in", flow, TestingSource(list(range(EPOCHS * ITEMS)), batch_size=ITEMS))
    sums = op.stateful_map("sums", op.map("blob", numbers, blob), keep)
    op.output("out", op.map("record", sums, record), JsonLinesSink(out))
    return flow


def written(out: Path) -> list[str]:
    """All lines of an output, in order of epoch and then of text."""
    folders = sorted(out.glob("epoch=*"))
    return [
        f"{folder.name[:14]}: {line}"
        for folder in folders
        for line in sorted("".join(file.read_text() for file in folder.iterdir()).splitlines())
    ]


def __getattr__(name: str) -> Dataflow:
    """The flow of the command line, which writes where the environment says."""
    if name != "flow":
        raise AttributeError(name)
    return make_flow(Path(os.environ["GROWING_OUT"]))
