"""Pickles of state, including pickles of earlier versions whose classes were in other modules.

A pickle names the module of each class that it holds. A package whose classes have moved registers
the move with `register_moved_module`, so that checkpoints of earlier versions can be restored.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from typing_extensions import override

_MOVED: dict[str, str] = {}


def register_moved_module(before: str, now: str) -> None:
    """Read classes that pickles name in module `before` from module `now`."""
    _MOVED[before] = now


def current_module(module: str) -> str:
    """Return the name that a module of an earlier version has now.

    >>> current_module("collections")
    'collections'
    """
    return _MOVED.get(module, module)


def load_pickle(content: bytes | memoryview) -> Any:
    """Read a pickle of this version or of an earlier one.

    >>> load_pickle(pickle.dumps({"n": 1}))
    {'n': 1}
    """
    try:
        return pickle.loads(content)
    except (ImportError, AttributeError):
        # The fallback is rare, and pickles of this version need no lookup of names in Python.
        return _Unpickler(io.BytesIO(content)).load()


class _Unpickler(pickle.Unpickler):
    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(current_module(module_name), global_name)
