"""Level processor in the process in which Spark asks for its state variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from flow.engine.spark.level_processor import PROCESSORS, cloudpickle
from flow.engine.spark.session.spark_capabilities import LevelAdapter
from tests.support.programs import printed_by

MAKE_AND_ASK = """
import json, pickle, sys
import pyspark.sql.streaming.stateful_processor
before = set(sys.modules)
processor = pickle.load(open(sys.argv[1], "rb"))

class Handle:
    def __init__(self):
        self.asked = []
    def getMapState(self, *variable):
        self.asked.append(variable)

handle = Handle()
processor.init(handle)
processor.close()
imported = {name.split(".")[0] for name in set(sys.modules) - before}
print(json.dumps({"asked": handle.asked, "imported": sorted(imported)}))
"""


@pytest.mark.parametrize("adapter", PROCESSORS)
def test_the_processor_is_made_without_imports_of_this_project_or_the_flow(
    adapter: LevelAdapter, tmp_path: Path
) -> None:
    content = b"what a worker reads when the first packets come"
    (tmp_path / "processor").write_bytes(cloudpickle.dumps(PROCESSORS[adapter](content)))
    assert printed_by("-I", "-c", MAKE_AND_ASK, tmp_path / "processor") == (
        '{"asked": [["headers", "step string", "content binary"], '
        '["segments", "step string, number int", "content binary"]], "imported": []}\n'
    )
