"""Caches of Python's import system in workers, which Spark 4.1 invalidates before each task.

The path of a worker's modules has zip files: Spark's jar and, except in sessions that this project
makes, PySpark. Up to 3.11, Python reads the directory of a zip file anew for each of its importers
that is invalidated (CPython issue 103200), in a sixth of a second for those of the jar, and in more
for those of PySpark: longer than a small task. From 4.2 on, workers invalidate importers only after
a change of the path.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def forget_zip_importers() -> None:
    """Remove the importers of zip files from the cache, so that the next task reads none anew.

    An import that needs such an importer makes a new one, from the directory that was read before.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
