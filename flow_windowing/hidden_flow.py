"""A check that no file ``flow.py`` of the user hides the package `flow`."""

from importlib.util import find_spec

_FOUND = find_spec("flow")
if _FOUND is not None and _FOUND.submodule_search_locations is None:
    raise ImportError(
        f"{_FOUND.origin} hides the package 'flow', which is installed: rename that file, or run "
        "the program in another folder",
        name="flow",
        path=_FOUND.origin,
    )
