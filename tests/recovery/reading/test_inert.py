"""Reading of pickles without running the code that they name."""

from __future__ import annotations

import importlib
import os
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pendulum
import pytest

from flow_windowing import LateReason, Retracted, WindowMetadata
from flow_windowing.rules.key_state import DriverState
from recovery.reading.inert import Inert, load_inert
from recovery.reading.rendering import plain


@dataclass
class Basket:
    owner: str
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class Slotted:
    n: int


class Pair(NamedTuple):
    left: int
    right: str


class Colour(Enum):
    RED = "red"


class Named(dict[str, int]):
    pass


class Listed(list[int]):
    pass


class Touches:
    """Object whose ordinary unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def reread(value: Any) -> Any:
    return load_inert(pickle.dumps(value, 5))


NAIVE = datetime(2024, 3, 31, 1, 30)  # noqa: DTZ001  (a user's may be naive)
WINDOWING = [
    DriverState((1, 2), None, None, 1, 0, {3: ([4],)}, (), {}, {}),
    WindowMetadata.of_us(1, 2, 3, frozenset({4})),
    *(LateReason.GAP, Retracted(5)),
]
PLAIN = [
    *(None, True, 7, 2.5, 1j, "text", b"bytes", bytearray(b"ab")),
    *([1, (2, {3}), frozenset({4})], {"a": {1: [2]}}),
    *(NAIVE.replace(fold=1), NAIVE.replace(tzinfo=UTC)),
    *(NAIVE.replace(tzinfo=ZoneInfo("Europe/Paris")), date(2024, 3, 31), timedelta(minutes=3)),
    *(Decimal("1.50"), Fraction(1, 3), UUID(int=7), np.float64(1.5), np.int32(7)),
    *(Counter("aab"), OrderedDict(a=1), defaultdict(list, {"a": [1]}), deque([1, 2], maxlen=3)),
]


@pytest.mark.parametrize("value", [*PLAIN, *WINDOWING], ids=repr)
def test_plain_values_and_state_of_windowing_are_rebuilt(value: Any) -> None:
    found = reread(value)
    assert (found, type(found)) == (value, type(value))


def test_code_that_a_pickle_names_is_not_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    found = reread({"harmless": 1, "other": Touches(target)})
    assert found["harmless"] == 1
    assert isinstance(found["other"], Inert)
    assert found["other"].name in {"posix.mkdir", "nt.mkdir"}
    assert found["other"].args == (str(target),)
    assert not target.exists()
    pickle.loads(pickle.dumps(Touches(target)))  # what it would have done
    assert target.exists()


HERE = __name__


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Basket("me", [1]), {"class": f"{HERE}.Basket", "fields": {"owner": "me", "sizes": [1]}}),
        (Slotted(7), {"class": f"{HERE}.Slotted", "state": [7]}),
        (Pair(1, "x"), {"class": f"{HERE}.Pair", "args": [1, "x"]}),
        (Colour.RED, {"class": f"{HERE}.Colour", "args": ["red"]}),
        (Named(a=1), {"class": f"{HERE}.Named", "entries": {"a": 1}}),
        (Listed([1, 2]), {"class": f"{HERE}.Listed", "items": [1, 2]}),
        (Path("a"), {"class": "pathlib.PosixPath", "args": ["a"]}),
        (ValueError("bad"), {"class": "builtins.ValueError", "args": ["bad"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_objects_are_shown_by_class_and_arguments(value: Any, shown: Any) -> None:
    assert plain(reread(value)) == shown


def test_values_around_objects_that_are_not_rebuilt_are_rebuilt() -> None:
    by_colour = {Colour.RED: Basket("me", []), "plain": deque([Basket("you", [])])}
    found = reread(by_colour)
    assert [repr(key) for key in found] == [f"{HERE}.Colour('red')", "'plain'"]
    assert repr(found["plain"][0]) == f"{HERE}.Basket(owner='you', sizes=[])"


def test_a_time_in_a_zone_that_is_not_rebuilt_is_a_stand_in() -> None:
    found = reread(pendulum.datetime(2024, 3, 31, tz="Europe/Paris"))
    assert repr(found).startswith("pendulum.datetime.DateTime(2024, 3, 31, 0, 0, 0, 0, ")
    found = reread(datetime(2024, 3, 31, tzinfo=pendulum.FixedTimezone(3600)))
    assert repr(found).startswith("datetime.datetime(")


def test_classes_are_shown_by_their_names() -> None:
    assert repr(reread([Basket, print])) == f"[{HERE}.Basket, builtins.print]"


def test_of_this_project_only_classes_that_hold_data_are_rebuilt() -> None:
    from flow.engine.state.store import MemoryStore

    assert reread(MemoryStore()).name == "flow.engine.state.store.MemoryStore"
    content = b"cflow.cli.loading\nload_flow\n(S'os:system'\ntR."
    assert repr(load_inert(content)) == "flow.cli.loading.load_flow('os:system')"


@pytest.mark.parametrize("keep", [0, 1, 5, 20, -1])
def test_truncated_bytes_are_an_error(keep: int) -> None:
    content = pickle.dumps({"a": [1, 2, 3], "b": Basket("me", [])}, 5)
    with pytest.raises(pickle.UnpicklingError):
        load_inert(content[:keep])


SHARED = [
    "flow_windowing.rules.metadata.WindowMetadata",
    "flow_windowing.rules.metadata.LateReason",
    "flow_windowing.by_key.window_driver.DriverState",
    *("collections.Counter", "collections.OrderedDict", "fractions.Fraction", "uuid.UUID"),
    *("datetime.datetime", "builtins.getattr", "builtins.list"),
]
IN_ATTRIBUTES, IN_SLOTS = b"}(V__doc__\nI1\nub.", b"N}(V__doc__\nI1\nu\x86b."


@pytest.mark.parametrize("state", [IN_ATTRIBUTES, IN_SLOTS])
@pytest.mark.parametrize("path", SHARED)
def test_attributes_of_shared_objects_are_not_set(path: str, state: bytes) -> None:
    module, _, name = path.rpartition(".")
    content = f"c{module}\n{name}\n".encode() + state
    shared = getattr(importlib.import_module(module), name)
    before = shared.__doc__
    with pytest.raises(pickle.UnpicklingError):
        load_inert(content)
    assert shared.__doc__ == before
    assert load_inert(pickle.dumps(Counter("aab"))) == Counter("aab")
