"""JSON Schema: Arrow columns of the objects that a schema describes, and schemas of columns.

A schema becomes text: columns, serialized by Arrow, in base64.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from flow.errors import FlowBuildError, shorten

_PLAIN = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "null": pa.null(),
    "number": pa.float64(),
    "string": pa.string(),
}


def self_contained(text: str, references: Mapping[str, str]) -> str:
    """Return the columns of a schema as text.

    Args:
        text: the schema.
        references: the schemas that it refers to, by the names that it gives them.

    Raises:
        FlowBuildError: no columns can hold what it describes.
    """
    documents = {name: json.loads(each) for name, each in references.items()}
    root = json.loads(text)
    kind = _Reader(documents).arrow_type(root, root, ())
    if not pa.types.is_struct(kind):
        raise FlowBuildError(f"the JSON schema describes no object: {shorten(text)}")
    return _text_of(pa.schema(list(kind)))


def columns_of(text: str) -> pa.Schema:
    """Return the columns of a schema's text."""
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def widened(old: str, new: str) -> str:
    """Return the columns of two schemas; numbers are promoted.

    Raises:
        ValueError: a column has another type, so that no column holds both.
    """
    both = [columns_of(old), columns_of(new)]
    try:
        return _text_of(pa.unify_schemas(both, promote_options="permissive"))
    except pa.ArrowException as error:
        raise ValueError(str(error).replace("Unable to merge: ", "").rstrip(".")) from None


def _text_of(columns: pa.Schema) -> str:
    return b64encode(columns.serialize().to_pybytes()).decode()


class _Reader:
    """Reader of a schema.

    Args:
        documents: the schemas that it refers to, by name.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def arrow_type(self, schema: Any, root: Any, outer: tuple[tuple[str, int], ...]) -> Any:
        """Return the Arrow type of the values that a part of a document describes.

        Args:
            schema: the part.
            root: the document.
            outer: pointers that lead to the part, each with the identity of its document.
        """
        if isinstance(schema, Mapping) and "$ref" in schema:
            return self._of_reference(str(schema["$ref"]), root, outer)
        alternatives = _alternatives(schema)
        if len(alternatives) != 1 or not isinstance(alternatives[0], Mapping):
            raise FlowBuildError(_no_column(schema))
        (one,) = alternatives
        if one is not schema:
            return self.arrow_type(one, root, outer)
        kind = schema.get("type", "object" if "properties" in schema else None)
        if kind == "object" and schema.get("properties"):
            fields = schema["properties"].items()
            return pa.struct([(name, self.arrow_type(part, root, outer)) for name, part in fields])
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return pa.list_(self.arrow_type(schema["items"], root, outer))
        if kind not in _PLAIN:
            raise FlowBuildError(_no_column(schema))
        return _PLAIN[kind]

    def _of_reference(self, reference: str, root: Any, outer: tuple[tuple[str, int], ...]) -> Any:
        name, _, pointer = reference.partition("#")
        part = document = self._documents.get(name) if name else root
        place = (pointer, id(document))
        if place in outer:
            raise FlowBuildError(_no_column({"$ref": reference}))
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            part = part.get(key) if isinstance(part, Mapping) else None
        if part is None:
            raise FlowBuildError(f"the JSON schema refers to {reference!r}, which is missing")
        return self.arrow_type(part, document, (*outer, place))


def _alternatives(schema: Any) -> list[Any]:
    """Return what a value may be beside null."""
    if not isinstance(schema, Mapping):
        return []
    for name in ("oneOf", "anyOf"):
        if name in schema:
            return [one for one in schema[name] if one != {"type": "null"}]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [{**schema, "type": kind} for kind in kinds if kind != "null"]
    return [schema]


def _no_column(schema: Any) -> str:
    return (
        f"the JSON schema has a part that no column can hold, {shorten(json.dumps(schema))}: read "
        "the bytes instead, with value='bytes'"
    )
