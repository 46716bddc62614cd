"""Reading pickles without running what they name.

A checkpoint's state is pickled, and a pickle can name any function to be called as it is read. A
tool that shows state has no need of that: it rebuilds plain values, and what this project's own
steps keep, and puts an `Inert` stand-in in the place of everything else. So it runs nothing of what
it reads, and can read state whose classes are not at hand.

A pickle can also set attributes of what it names. So it is given no class or function that others
use, but a *maker* of its own, which makes what that would make and takes no attribute.
"""

from __future__ import annotations

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

from flow.keyed.pickles import module_now

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
"""What is rebuilt as it is: making one runs no code but its own."""

_OWN_PACKAGES = ("flow", "flow_windowing")
_WITH_DATACLASSES = ("flow_windowing.", "flow.operators.")


class Inert:
    """Stands for an object whose class is not rebuilt: what it was made from, and never its code.

    Attributes:
        name: module and name of the class, or of the function that would have made it.
        args: what it would have been called with.
        kwargs: the same, by name.
        state: what its attributes would have been set from; ``None`` when there was nothing.
        items: what would have been put into it, one after the other.
        entries: what would have been put into it by key.
    """

    name: ClassVar[str] = ""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: Any
    items: list[Any]
    entries: list[tuple[Any, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        """Called by the unpickler in the place of the class or function itself."""
        made = object.__new__(cls)
        made.args, made.kwargs, made.state = args, kwargs, None
        made.items, made.entries = [], []
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Inert:
        """Called by the unpickler where it was to call what something else has returned."""
        return inert_class("", repr(self))(*args, **kwargs)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries.append((key, value))

    def append(self, item: Any) -> None:
        """Called by the unpickler for what a list would take."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Called by the unpickler for what a list would take."""
        self.items.extend(items)

    def add(self, item: Any) -> None:
        """Called by the unpickler for what a set would take."""
        self.items.append(item)

    def fields(self) -> dict[str, Any]:
        """The attributes it would have, as far as they are named."""
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
    """Lets a stand-in for a class or function show itself by its name."""

    def __repr__(cls) -> str:
        return str(cls.__dict__.get("name", cls.__name__))


def inert_class(module: str, name: str) -> type[Inert]:
    """A stand-in for a class or function."""
    made: Any = _Named(name, (Inert,), {"name": f"{module}.{name}" if module else name})
    return cast("type[Inert]", made)


def load_inert(content: bytes | memoryview) -> Any:
    r"""Read a pickle; what is not plain is an `Inert`.

    Raises:
        pickle.UnpicklingError: when it cannot be read.

    >>> load_inert(pickle.dumps({"n": 1}))
    {'n': 1}
    >>> load_inert(b"cos\nsystem\n(S'echo run'\ntR.")
    os.system('echo run')
    """
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # what cut-off or changed bytes may lead to
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error


class _Maker(type):
    """The class of makers: to call one is to call what it stands for."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__dict__["made_by"].__func__(*args, **kwargs)

    def __setattr__(cls, name: str, value: Any) -> None:
        raise pickle.UnpicklingError(f"it sets {name!r} of {cls.__name__}, which others use")

    def __delattr__(cls, name: str) -> None:
        raise pickle.UnpicklingError(f"it removes {name!r} of {cls.__name__}, which others use")

    def __repr__(cls) -> str:
        return repr(cls.__dict__["made_by"].__func__)


def _maker(found: Any) -> type:
    """A maker of what a class or function makes."""

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
        name = module_now(module_name), global_name
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
    """Whether attributes of a class or function can be set: those written in C take none."""
    return isinstance(found, FunctionType) or bool(getattr(found, "__flags__", 0) & _IS_OF_HEAP)


_IS_OF_HEAP = 1 << 9
"""The flag of classes that are written in Python (``Py_TPFLAGS_HEAPTYPE``)."""


def _own_class(module: str, name: str) -> type | None:
    """A class of this project that only holds data; `None` for everything else.

    Nothing is imported for it: what keeps state in a flow is there when this package is.
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
    """A datetime; a stand-in where its time zone is one."""
    try:
        return _MAKE_DATETIME(*args)
    except TypeError:
        return inert_class("datetime", "datetime")(*args)


def _attribute(owner: Any, name: Any) -> Any:
    """What pickles say for a method: time zones are rebuilt by one of theirs."""
    if isinstance(owner, type) and repr(owner) in _ZONES and name == "_unpickle":
        return _zone
    return inert_class("builtins", "getattr")(owner, name)


def _zone(key: Any, *args: Any) -> Any:
    try:
        return ZoneInfo(key)
    except Exception:  # a name that this machine's data has not, or no name at all
        return inert_class("zoneinfo", "ZoneInfo")(key, *args)


_MAKE_DATETIME: Callable[..., datetime] = datetime
_ZONES = ("zoneinfo.ZoneInfo", "pendulum.tz.timezone.Timezone")
_REBUILT: dict[tuple[str, str], Callable[..., Any]] = {
    ("datetime", "datetime"): _datetime,
    ("builtins", "getattr"): _attribute,
}
"""What is rebuilt in a way of our own."""
