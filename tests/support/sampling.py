"""Properties: an ordinary run tries a part of their examples, ``--all`` all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

ORDINARY = "steady"
"""The hypothesis profile of an ordinary run; any other tries all examples."""

EXAMPLES = {False: 100, True: 40}
"""The number of examples of a property that names none, by whether the run is an ordinary one."""

Test = TypeVar("Test", bound=Callable[..., object])


def sampled(examples: int, *, by_default: int) -> Callable[[Test], Test]:
    """Return the settings of a property that takes long.

    The test has the marker ``sampled``.

    Args:
        examples: number of examples with ``--all``, or with another hypothesis profile.
        by_default: number of examples in an ordinary run.
    """
    ordinary = settings.get_current_profile_name() == ORDINARY

    def decorate(test: Test) -> Test:
        chosen = settings(max_examples=by_default if ordinary else examples)
        return pytest.mark.sampled(chosen(test))

    return decorate
