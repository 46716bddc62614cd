"""Unpickling that runs no code from the pickle.

State is pickled, and reading a pickle can call any function. The tools rebuild plain values and the
state of this project's steps, and replace all other objects by `Inert` stand-ins. So the
tools run no code from a checkpoint, and can read state whose classes cannot be imported.

A pickle can also set attributes of a class or function that it names. So the unpickler hands out no
shared class or function, but a *maker*, which makes the same objects and rejects attributes.
"""

from __future__ import annotations

import array as array_module
import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from types import FunctionType
from typing import Any, ClassVar, cast
from zoneinfo import ZoneInfo

from typing_extensions import override

from flow_windowing.aggregates.distinct_sketch import DistinctSketch
from flow_windowing.rules.key_state import PackedList

_PLAIN = frozenset(
    {
        *(("builtins", name) for name in ("bool", "int", "float", "complex", "str", "bytes")),
        *(("builtins", name) for name in ("bytearray", "list", "tuple", "dict", "set")),
        *(("builtins", name) for name in ("frozenset", "range", "slice")),
        *(("datetime", name) for name in ("date", "time", "timedelta", "timezone")),
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("uuid", "UUID"),
        # Single numbers only: an array can hold objects, which are pickles again.
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "scalar"),
    }
)
"""Classes that are rebuilt: their constructors run no foreign code."""

_OWN_PACKAGES = ("flow", "flow_windowing")
_WITH_DATACLASSES = ("flow_windowing.", "flow.operators.")


class Inert:
    """A stand-in for an object whose class is not rebuilt, with the contents of the pickle.

    Attributes:
        name: module and name of the class, or of the function that makes the object.
        args: the arguments of the constructor by position.
        kwargs: the arguments of the constructor by name.
        state: the state that sets the object's attributes; ``None`` without state.
        items: the elements added to the object, in order.
        entries: the keys and values set in the object, in order.
    """

    name: ClassVar[str] = ""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: Any
    items: list[Any]
    entries: list[tuple[Any, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        """Make a stand-in: the unpickler calls this in place of the class or function."""
        made = object.__new__(cls)
        made.args, made.kwargs, made.state = args, kwargs, None
        made.items, made.entries = [], []
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Inert:
        """Make a stand-in for the result of a call of this object."""
        return inert_class("", repr(self))(*args, **kwargs)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries.append((key, value))

    def append(self, item: Any) -> None:
        """Record an element of a list or a set."""
        self.items.append(item)

    add = append

    def extend(self, items: Any) -> None:
        """Record elements of a list."""
        self.items.extend(items)

    def fields(self) -> dict[str, Any]:
        """Return the object's arguments and attributes by name; attributes override arguments."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        found: dict[str, Any] = dict(self.kwargs)
        for part in parts:
            if isinstance(part, dict) and all(isinstance(name, str) for name in part):
                found.update(part)
        return found

    def __repr__(self) -> str:
        shown = [repr(one) for one in self.args]
        shown += [f"{name}={value!r}" for name, value in self.fields().items()]
        if self.state is not None and not self.fields():
            shown.append(repr(self.state))
        shown += [repr(one) for one in self.items]
        shown += [f"{key!r}: {value!r}" for key, value in self.entries]
        return f"{self.name}({', '.join(shown)})"


class _Named(type):
    """The metaclass of stand-ins, whose repr is the name of the class or function."""

    def __repr__(cls) -> str:
        return str(cls.__dict__.get("name", cls.__name__))


def inert_class(module: str, name: str) -> type[Inert]:
    """Make a stand-in for a class or function."""
    made: Any = _Named(name, (Inert,), {"name": f"{module}.{name}" if module else name})
    return cast("type[Inert]", made)


def load_inert(content: bytes | memoryview) -> Any:
    r"""Read a pickle, with `Inert` objects for values that are not plain.

    Raises:
        pickle.UnpicklingError: if the pickle cannot be read.

    >>> load_inert(pickle.dumps({"n": 1}))
    {'n': 1}
    >>> load_inert(b"cos\nsystem\n(S'echo run'\ntR.")
    os.system('echo run')
    """
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # Truncated or changed bytes may raise any exception.
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error


class _Maker(type):
    """The metaclass of makers: a call of a maker calls the class or function behind it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__dict__["made_by"].__func__(*args, **kwargs)

    def __setattr__(cls, name: str, value: Any) -> None:
        raise pickle.UnpicklingError(f"it sets {name!r} of {cls.__name__}, which others use")

    def __delattr__(cls, name: str) -> None:
        raise pickle.UnpicklingError(f"it removes {name!r} of {cls.__name__}, which others use")

    def __repr__(cls) -> str:
        return repr(cls.__dict__["made_by"].__func__)


def _maker(found: Any) -> type:
    """Make the maker of a class or function."""

    def new(_: type, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"{found.__name__} is no class")
        return found.__new__(found, *args, **kwargs)

    body = {"made_by": staticmethod(found), "__new__": new}
    return _Maker(found.__name__, (), body)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._classes: dict[tuple[str, str], type[Inert]] = {}

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = module_name, global_name
        if name in _PLAIN:
            found = super().find_class(*name)
            return _made(found) if _takes_attributes(found) else found
        rebuilt = _REBUILT.get(name) or _own_class(*name)
        if rebuilt is not None:
            return _made(rebuilt)
        if name not in self._classes:
            self._classes[name] = inert_class(*name)
        return self._classes[name]


_made = lru_cache(maxsize=256)(_maker)


def _takes_attributes(found: Any) -> bool:
    """Return True if attributes of a class or function can be set; False if it is written in C."""
    return isinstance(found, FunctionType) or bool(getattr(found, "__flags__", 0) & _IS_OF_HEAP)


_IS_OF_HEAP = 1 << 9
"""The flag of classes that are written in Python (``Py_TPFLAGS_HEAPTYPE``)."""


def _own_class(module: str, name: str) -> type | None:
    """Return a class of this project that only holds data; `None` for all other names.

    The function imports no modules: the modules of state are loaded with this package.
    """
    if module.partition(".")[0] not in _OWN_PACKAGES:
        return None
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and _holds_data(found) else None


def _holds_data(found: type) -> bool:
    if issubclass(found, (tuple, Enum)):
        return True
    return is_dataclass(found) and found.__module__.startswith(_WITH_DATACLASSES)


def _datetime(*args: Any) -> Any:
    """Make a datetime; if its time zone is a stand-in, make a stand-in for the datetime."""
    try:
        return _MAKE_DATETIME(*args)
    except TypeError:
        return inert_class("datetime", "datetime")(*args)


def _attribute(owner: Any, name: Any) -> Any:
    """Resolve a method in a pickle: only the method that rebuilds time zones."""
    if isinstance(owner, type) and repr(owner) in _ZONES and name == "_unpickle":
        return _zone
    return inert_class("builtins", "getattr")(owner, name)


def _zone(key: Any, *args: Any) -> Any:
    try:
        return ZoneInfo(key)
    except Exception:  # This machine may lack the zone, or the key may be no name.
        return inert_class("zoneinfo", "ZoneInfo")(key, *args)


def _numbers(_: object, code: str, layout: int, content: bytes) -> Any:
    """Make an array of numbers from its bytes; the class in the pickle is not used."""
    return _MAKE_ARRAY(array_module.array, code, layout, content)


_MAKE_ARRAY: Callable[..., Any] = array_module._array_reconstructor  # type: ignore[attr-defined]
_MAKE_DATETIME: Callable[..., datetime] = datetime
_ZONES = ("zoneinfo.ZoneInfo", "pendulum.tz.timezone.Timezone")
_REBUILT: dict[tuple[str, str], Callable[..., Any]] = {
    ("datetime", "datetime"): _datetime,
    ("builtins", "getattr"): _attribute,
    (PackedList.__module__, PackedList.__name__): PackedList,
    (DistinctSketch.__module__, DistinctSketch.__name__): DistinctSketch,
    ("array", "_array_reconstructor"): _numbers,
}
"""Functions that rebuild objects of certain names."""
