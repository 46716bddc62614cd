"""A check that no module of the user hides a package of this project."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def exit_if_hidden(name: str) -> None:
    """End the process with an error message if a file hides a package of this project.

    A file ``<name>.py`` in the working directory hides an installed package of that name.

    Args:
        name: a package of this project, such as ``recovery``.
    """
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is None:
        sys.exit(
            f"{spec.origin} hides the package {name!r}, which is installed with flow: rename that "
            "file, or run the command in another folder"
        )
