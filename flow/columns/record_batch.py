"""`RecordBatch` for annotations of public functions.

PyArrow ships no types, so its classes are unknown to the type checkers of users' code, and so would
be every public signature that names one. For checkers `RecordBatch` is ``Any``; at run time it is
`pyarrow.RecordBatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    RecordBatch: TypeAlias = Any
else:
    RecordBatch = pa.RecordBatch
