"""Errors of file systems and of Arrow's readers, raised as errors of a flow."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from flow.connectors.files.places.credentials import without_credentials
from flow.errors import FlowError


@contextmanager
def raise_as(error: type[FlowError], problem: str) -> Iterator[None]:
    """Raise errors of the block as `error`, with a message of `problem` and their first line."""
    try:
        yield
    except (OSError, pa.ArrowException, EOFError) as cause:
        reason = str(cause).strip().partition("\n")[0]
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            reason += "; make room there and run the flow again"
        raise error(without_credentials(f"{problem}: {reason}")) from cause
