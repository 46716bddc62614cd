"""Schemas of Protobuf: descriptors, merging, and columns of messages.

A schema is text: the full name of a message, and a `FileDescriptorSet` in base64 that has its file
and all that it imports.
"""

from __future__ import annotations

import importlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from flow.errors import FlowBuildError

_OWN_IMPORTS = "google/protobuf/"
_TIMESTAMP = "google.protobuf.Timestamp"
_INSTANT = pa.timestamp("us", "UTC")
_KINDS = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
}
_PROMOTIONS = (
    (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64),
    (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64),
    (FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64),
)
"""Types of whole numbers with the same bytes, each with the wider one."""


def self_contained(encoded: str, references: Mapping[str, str], message: str | None) -> str:
    """Return a schema as text.

    Args:
        encoded: the file as a `FileDescriptorProto` in base64.
        references: the files that it imports, likewise, by the path of the import.
        message: full name of the message; ``None`` for the first of the file.

    Raises:
        ValueError: the text is no such file, or an import or the message is missing.
    """
    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        for path in file.dependency:
            if path not in found:
                add(_file(references[path], path) if path in references else _own_file(path))
        found[file.name] = file

    root = _file(encoded, "")
    add(root)
    name = message or next((_full_name(root.package, one.name) for one in root.message_type), "")
    files = descriptor_pb2.FileDescriptorSet(file=found.values())
    text = f"{name} {b64encode(files.SerializeToString()).decode()}"
    try:
        message_class(text)
    except (KeyError, TypeError) as error:
        raise ValueError(f"it does not describe the message {name!r}: {error}") from None
    return text


def _file(encoded: str, path: str) -> Any:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(encoded, validate=True))
    except (Base64Error, DecodeError, ValueError):
        raise ValueError(
            "the registry gives the source text of Protobuf in the place of its descriptor, as it "
            "does not know format=serialized"
        ) from None
    file.name = path or file.name or "schema.proto"
    return file


def _own_file(path: str) -> Any:
    """Return a file of Protobuf itself."""
    if not path.startswith(_OWN_IMPORTS):
        raise ValueError(f"it imports {path!r}, to which the registry has no reference")
    module = importlib.import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _full_name(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


def _split(schema: str) -> tuple[str, Any]:
    name, _, encoded = schema.partition(" ")
    return name, descriptor_pb2.FileDescriptorSet.FromString(b64decode(encoded))


@lru_cache(maxsize=64)
def message_class(schema: str) -> Any:
    """Return the class of a schema's message."""
    name, files = _split(schema)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def split_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of a message in its file, and the message, given a value without its id.

    Raises:
        ValueError: the value ends in its indexes.
    """
    if data[:1] == b"\0":
        return (0,), data[1:]
    count, at = _varint(data, 0)
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return tuple(indexes), data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("its indexes of a Protobuf message are not complete")


@lru_cache(maxsize=64)
def message_at(schema: str, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message at a position in the schema's own file.

    Raises:
        ValueError: the file has no such message.
    """
    file = _split(schema)[1].file[-1]
    name, messages = str(file.package), file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"its schema has no message at {list(indexes)}")
        name, messages = _full_name(name, messages[index].name), messages[index].nested_type
    return name


def arrow_type(descriptor: Any, outer: tuple[str, ...] = ()) -> Any:
    """Return the Arrow type of a message: a struct, or an instant for a timestamp.

    Raises:
        FlowBuildError: the message may hold itself, which no column can.
    """
    if descriptor.full_name == _TIMESTAMP:
        return _INSTANT
    if descriptor.full_name in outer:
        raise FlowBuildError(
            f"the Protobuf message {descriptor.full_name!r} may hold itself, which no column can "
            "hold: read the bytes instead, with value='bytes'"
        )
    inside = (*outer, descriptor.full_name)
    return pa.struct([(field.name, _field_type(field, inside)) for field in descriptor.fields])


def _field_type(field: Any, outer: tuple[str, ...]) -> Any:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single_type(entry["key"], outer), _single_type(entry["value"], outer))
    kind = _single_type(field, outer)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: Any, outer: tuple[str, ...]) -> Any:
    if field.message_type is not None:
        return arrow_type(field.message_type, outer)
    if field.type == field.TYPE_BYTES:
        return pa.binary()
    return _KINDS[field.cpp_type]


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def column_of(messages: Sequence[Any], descriptor: Any) -> Any:
    """Return messages as an array of `arrow_type`; a message that is ``None`` is null."""
    if descriptor.full_name == _TIMESTAMP:
        times = [one and one.seconds * 1_000_000 + one.nanos // 1_000 for one in messages]
        return pa.array(times, pa.int64()).cast(_INSTANT)
    if not descriptor.fields:
        return pa.array([one and {} for one in messages], pa.struct([]))
    return pa.StructArray.from_arrays(
        [_column_of_field(messages, field) for field in descriptor.fields],
        fields=list(arrow_type(descriptor)),
        mask=pa.array([one is None for one in messages], pa.bool_()),
    )


def _column_of_field(messages: Sequence[Any], field: Any) -> Any:
    name = field.name
    if not field.is_repeated:
        if field.has_presence:
            return _array(
                [getattr(one, name) if one and one.HasField(name) else None for one in messages],
                field,
            )
        return _array([one and getattr(one, name) for one in messages], field)
    parts = [() if one is None else getattr(one, name) for one in messages]
    ends = pa.array([0, *accumulate(map(len, parts))], pa.int32())
    if not _is_map(field):
        return pa.ListArray.from_arrays(ends, _array(list(chain.from_iterable(parts)), field))
    pairs = [pair for part in parts if part for pair in part.items()]
    entry = field.message_type.fields_by_name
    keys, values = (
        _array([pair[at] for pair in pairs], entry[which])
        for at, which in enumerate(("key", "value"))
    )
    return pa.MapArray.from_arrays(ends, keys, values)


def _array(values: Sequence[Any], field: Any) -> Any:
    if field.message_type is not None:
        return column_of(values, field.message_type)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        values = [None if one is None else names.get(one, str(one)) for one in values]
    return pa.array(values, _single_type(field, ()))


def widened(old: str, new: str) -> str:
    """Return the new schema, which reads the values of both.

    Raises:
        ValueError: a field of the old one has another name, number or type now, or is gone.
    """
    check_reads(*(message_class(one).DESCRIPTOR for one in (new, old)), whole=True)
    return new


def check_reads(
    reader: Any, writer: Any, *, whole: bool = False, outer: tuple[str, ...] = ()
) -> None:
    """Check that values of one message can be read as another, by the numbers of fields.

    Args:
        reader: descriptor of the message to read.
        writer: descriptor of the message that was written.
        whole: True if the reader must have all fields of the writer, with their names.
        outer: names of the messages around it.

    Raises:
        ValueError: they cannot.
    """
    for field in () if writer.full_name in outer else writer.fields:
        own = reader.fields_by_number.get(field.number)
        if whole and (own is None or own.name != field.name):
            raise ValueError(f"the field {field.full_name} is gone, or has another name")
        if own is None:
            continue
        kinds = (field.type, own.type)
        if field.is_repeated != own.is_repeated or not (
            field.type == own.type or kinds in _PROMOTIONS
        ):
            raise ValueError(f"the field {field.full_name} has another type")
        if field.message_type is not None:
            inside = (*outer, writer.full_name)
            check_reads(own.message_type, field.message_type, whole=whole, outer=inside)
