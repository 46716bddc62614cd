"""The check that `flow` is this project's package, not a file of that name in the user's folder."""

from importlib.util import find_spec

_FOUND = find_spec("flow")
if _FOUND is not None and _FOUND.submodule_search_locations is None:
    raise ImportError(
        f"{_FOUND.origin} hides the package 'flow', which is installed: rename that file, or run "
        "the program in another folder",
        name="flow",
        path=_FOUND.origin,
    )
