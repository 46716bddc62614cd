"""The process that Spark forks Python workers from, with what they need imported beforehand."""

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.ipc  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
