"""`RecordBatch` for annotations of public functions.

PyArrow ships no types, so a type checker of a user's code does not know its classes, and reports
public signatures that name one of them. For checkers `RecordBatch` is ``Any``; at run time it is
`pyarrow.RecordBatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    RecordBatch: TypeAlias = Any
else:
    RecordBatch = pa.RecordBatch
