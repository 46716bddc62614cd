"""Paths in a checkpoint's files, and their translation when the checkpoint is moved."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recovery.tools.relocating import Here, _identity, _offset

SCHEMA = "spark/state/0/_stateSchema/default/0_x"
PART = "inputs/a%20frame/part-0.parquet"


class Files:
    """A checkpoint in ``/new``."""

    root = "/new"
    uri = "file:/new"

    @property
    def storage(self) -> Files:
        return self

    def exists(self, name: str) -> bool:
        return name in {SCHEMA, PART, "seed-1"}


@pytest.fixture
def here() -> Here:
    return Here(Files())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "moved", "place"),
    [
        (f"file:/old/{SCHEMA}", f"file:/new/{SCHEMA}", "/old"),
        (f"hdfs://host:8020/a/b/{SCHEMA}", f"file:/new/{SCHEMA}", "hdfs://host:8020/a/b"),
        (f"file:/spark/state/0/{SCHEMA}", f"file:/new/{SCHEMA}", "/spark/state/0"),
        ("/old/seed-1", "/new/seed-1", "/old"),
    ],
)
def test_a_path_of_the_old_place_is_translated_if_its_counterpart_exists(
    path: str, moved: str, place: str, here: Here
) -> None:
    assert here.path(path) == moved
    assert here.others == [place]


@pytest.mark.parametrize(
    "path",
    [
        f"file:/new/{SCHEMA}",
        "file:/old/spark/state/0/_stateSchema/default/0_y",
        "/old/seed-2",
        "/old/seed-1/part-00.parquet",
        "anything",
    ],
)
def test_other_paths_are_not_translated(path: str, here: Here) -> None:
    assert here.path(path) == path
    assert here.others == []


def test_in_the_log_of_an_epoch_only_entries_of_the_flow_are_translated(here: Here) -> None:
    alike = ["", f"/old/{PART}", 7]
    own: dict[str, Any] = {
        "v": 1,
        "at": {"mine": alike},
        "read": [
            ["a frame", [{"file": alike, "start": 0, "end": 1}], 0, 0],
            ["files", [{"file": ["", "/data/inputs/x/y", 7], "start": 0, "end": 1}], 0, 0],
        ],
        "seed": "/old/seed-1",
    }
    sparks = '{"logOffset":0,  "path":"/old/seed-1\u2028"}'
    text = f"v2\n{{}}\nticker:{json.dumps(own)}\n{sparks}"
    version, metadata, line, foreign = _offset(text, here).split("\n")
    assert (version, metadata, foreign) == ("v2", "{}", sparks)
    name, _, content = line.partition(":")
    moved = json.loads(content)
    assert (name, moved["seed"]) == ("ticker", "/new/seed-1")
    assert moved["read"][0][1][0]["file"] == ["", f"/new/{PART}", 7]
    assert moved["read"][1] == own["read"][1]
    assert moved["at"] == own["at"]


def test_in_the_metadata_of_a_checkpoint_only_offsets_are_translated(here: Here) -> None:
    files = ["a frame", [{"file": ["", f"/old/{PART}", 7]}], 0, 0]
    offset = {"v": 1, "read": [files]}
    content = {"flow_id": "/old/seed-1", "start": None, "begun": offset, "undone": [offset]}
    moved = json.loads(_identity(json.dumps(content), here))
    assert (moved["flow_id"], moved["start"]) == ("/old/seed-1", None)
    for one in (moved["begun"], *moved["undone"]):
        assert one["read"][0][1][0]["file"] == ["", f"/new/{PART}", 7]
