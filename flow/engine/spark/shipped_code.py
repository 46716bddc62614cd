"""Objects and modules that Spark's processes load from memory.

Over Spark Connect, files that a session adds reach no process of a stream (seen up to 4.3). So a
server without the packages of this project, or without modules of the user, gets them as a zip
beside each pickle of an object (`Shipped`), and a finder imports modules from it.

This module is pickled by value: its functions may name nothing of this project.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import pickle
import sys
import zipfile
from typing import Any

from pyspark import cloudpickle as untyped_cloudpickle

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Shipped:
    """An object that a process loads when it first asks for it.

    Args:
        content: a pickle of the object.
        code: a zip of the modules that the process may lack; empty without such.
    """

    def __init__(self, content: bytes, code: bytes = b"") -> None:
        self._content = content
        self._code = code
        self._object: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_object": None}

    def get(self) -> Any:
        """Return the object."""
        if self._object is None:
            import_from(self._code)
            self._object = pickle.loads(self._content)
        return self._object


class ShippedFunction:
    """A function that a process loads when it first calls it.

    Args:
        function: the function.
    """

    def __init__(self, function: Shipped) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function.get()(*args)


def import_from(code: bytes) -> None:
    """Import modules of a zip in memory before others of their names, from now on."""
    if code and not any(getattr(finder, "code", None) == code for finder in sys.meta_path):
        sys.meta_path.insert(0, CodeInMemory(code))


class CodeInMemory:
    """Finder and loader of the modules in a zip, which may have their compiled forms.

    Args:
        code: the zip.
    """

    def __init__(self, code: bytes) -> None:
        self.code = code
        self._files = zipfile.ZipFile(io.BytesIO(code))
        self._names = frozenset(self._files.namelist())

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        """Return the spec of a module; ``None`` if the zip does not have it."""
        for is_package in (True, False):
            if self._file(name, is_package) in self._names:
                return importlib.util.spec_from_loader(name, self, is_package=is_package)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> None:
        """Leave the making of a module to Python."""

    def exec_module(self, module: Any) -> None:
        """Run the code of a module."""
        spec = module.__spec__
        file = self._file(spec.name, spec.submodule_search_locations is not None)
        exec(self._compiled(file), module.__dict__)

    def _compiled(self, file: str) -> Any:
        compiled = f"{file}c"
        if compiled in self._names:
            content = self._files.read(compiled)
            if content[:4] == importlib.util.MAGIC_NUMBER:
                return marshal.loads(content[16:])
        return compile(self._files.read(file), file, "exec", dont_inherit=True)

    def _file(self, name: str, is_package: bool) -> str:
        return name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
