"""Change streams: changes of the rows of a database, as Debezium writes them to Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from flow.checks import check_choice
from flow.columns.text_keys import key_reader
from flow.dataflow import KeyedStream, Stream
from flow.errors import shorten
from flow.operators.stateless import flat_map, key_on

ChangeKind: TypeAlias = Literal["create", "read", "update", "delete"]
"""Kind of a change; a row is read when Debezium takes its first snapshot of a table."""

OnTruncate: TypeAlias = Literal["fail", "skip"]

Fields: TypeAlias = "Mapping[str, Any]"

_KINDS: Mapping[str, ChangeKind] = {"c": "create", "r": "read", "u": "update", "d": "delete"}
_TRUNCATE = "t"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POSITIONS = (
    ("lsn",),  # PostgreSQL
    ("file", "pos", "row"),  # MySQL and MariaDB
    ("change_lsn", "event_serial_no"),  # SQL Server
    ("scn",),  # Oracle
    ("ts_ms", "ord"),  # MongoDB, which numbers the changes of a second
)
"""Fields of the source of an event that have its place in the log of a database."""


@dataclass(frozen=True)
class Change:
    """Change of a row of a database.

    Attributes:
        op: ``"create"``, ``"read"``, ``"update"`` or ``"delete"``.
        key: the values of the row's key as text, by the rules of `key_on`.
        before: the row before the change; ``None`` if it did not exist. A database that does not
            log former rows gives only some of the columns, for a delete those of the key at least.
        after: the row after the change; ``None`` for a delete.
        ts: the time of the change in the database.
        position: the place of the change in the database's log, which compares with that of another
            change of the same database; empty if the database is not known.
    """

    op: ChangeKind
    key: str
    before: Fields | None
    after: Fields | None
    ts: datetime
    position: tuple[Any, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Return the row with ``is_retraction``, by which sinks of tables delete it.

        >>> Change("delete", "7", {"id": 7}, None, datetime(2026, 1, 1, tzinfo=UTC)).as_record()
        {'is_retraction': True, 'id': 7}
        """
        row = self.before if self.after is None else self.after
        return {"is_retraction": self.after is None, **(row or {})}


def debezium(
    step_id: str, up: Stream[Any], *, on_truncate: OnTruncate = "fail"
) -> KeyedStream[Change]:
    """Turn the events of Debezium into changes of rows, by the key of the row.

    An event is the value of a message of a table's topic: an envelope with ``op``, ``before``,
    ``after`` and ``source``, with or without the schema (``schemas.enable``). The key of the
    message has the values of the row's key. Tombstones are left out, as the event before each is a
    delete. An update that changes the key comes as a delete and a create.

    Debezium sends events again after it was killed. The newest state of each row comes out right,
    as they are sent in order; a step that adds up changes should compare `Change.position`.

    Args:
        step_id: the step's id, unique in the flow.
        up: messages of a `KafkaSource` with ``key="json", value="json"`` or Avro, or pairs of a key
            and a value.
        on_truncate: action for the event of a truncated table, which names no rows: ``"fail"``, or
            ``"skip"`` to leave the rows. Debezium leaves these events out by default.

    Raises:
        StepError: when the flow runs: an item is no event of a row, or has no key.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> envelope = {"op": "u", "before": None, "after": {"id": 7, "city": "Rome"},
        ...             "source": {"ts_ms": 1_767_225_600_000, "lsn": 12}}
        >>> def cities(events):
        ...     changes = op.debezium("changes", events)
        ...     return op.map_value("city", changes, lambda change: change.after["city"])
        >>> run_once([({"id": 7}, envelope), ({"id": 7}, None)], cities)
        [('7', 'Rome')]
    """
    check_choice(f"step {shorten(step_id)}: on_truncate", on_truncate, get_args(OnTruncate))
    changes = flat_map(step_id, up, partial(_changes_of, on_truncate))
    return key_on(f"{step_id}.key", changes, _key_of)


def _key_of(change: Change) -> str:
    return change.key


def _changes_of(on_truncate: OnTruncate, item: Any) -> list[Change]:
    """Return the change in an item; nothing for a tombstone."""
    key, value = item if isinstance(item, tuple) else (item.key, item.value)
    event = _payload(value)
    if event is None:
        return []
    letter = event.get("op") if isinstance(event, Mapping) else None
    if letter == _TRUNCATE and on_truncate == "skip":
        return []
    kind = _KINDS.get(str(letter))
    if kind is None or not isinstance(event.get("source"), Mapping):
        raise ValueError(_problem(letter, value))
    if kind != "delete" and event.get("after") is None:  # As of MongoDB without whole documents.
        raise ValueError(_problem(letter, value))
    fields = _payload(key)
    if not isinstance(fields, Mapping) or not fields:
        raise ValueError(
            f"the message has no key with fields, got {shorten(key)}: give the table a primary "
            "key, or Debezium the setting message.key.columns, and read keys with key='json'"
        )
    before, after, source = event.get("before"), event.get("after"), event["source"]
    if after is None:
        before = {**fields, **(before or {})}
    text = key_reader(tuple(fields))(fields)
    return [Change(kind, text, before, after, _time_of(source), _position(source))]


def _payload(value: Any) -> Any:
    """Return a key or value without the schema that may stand beside it."""
    has_schema = isinstance(value, Mapping) and value.keys() == {"schema", "payload"}
    return value["payload"] if has_schema else value


def _problem(letter: object, value: object) -> str:
    if letter == _TRUNCATE:
        return (
            "the table was truncated, and the event names no rows: make the output anew from a "
            "snapshot, or pass on_truncate='skip' to leave the rows"
        )
    return (
        "no event of a row, which has op ('c', 'r', 'u' or 'd'), source, and a row: "
        f"got {shorten(value)}; read the topics of tables alone, with value='json' or 'avro'"
    )


def _time_of(source: Fields) -> datetime:
    us = source.get("ts_us")
    return _EPOCH + timedelta(microseconds=source["ts_ms"] * 1000 if us is None else us)


def _position(source: Fields) -> tuple[Any, ...]:
    for names in _POSITIONS:
        if all(source.get(name) is not None for name in names):
            found = tuple(source[name] for name in names)
            return (int(found[0]),) if names == ("scn",) else found  # Oracle has it as text.
    return ()
