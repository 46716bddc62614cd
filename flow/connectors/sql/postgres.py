"""Sink of PostgreSQL, over psycopg 3."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyarrow import types
from typing_extensions import override

from flow.columns.arrow_types import is_instant
from flow.connectors.driver_copies import pickles_for_driver
from flow.connectors.source import Dataset
from flow.connectors.sql.database import (
    EPOCHS_TABLE,
    Database,
    Dialect,
    Row,
    RowGroup,
    TableName,
    ValueConverter,
    by_type,
    finite_float,
    int64,
    quoted,
    quoted_table,
    to_utc,
    utf8_text,
)
from flow.connectors.sql.table_sink import TableSink, check_table_name
from flow.errors import FlowBuildError, FlowTypeError, package_of_extra, shorten

if TYPE_CHECKING:
    import psycopg

_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_HIDDEN = "***"
# An arbitrary number that other programs do not use for advisory locks.
_SET_UP_LOCK = 0x666C6F77
# Number of rows from which the set-up of COPY and executemany pays.
_BULK_ROWS = 8
_OVERRIDING = "OVERRIDING SYSTEM VALUE "


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("PostgreSQL has no NUL characters in text: remove them, or write bytes")
    return utf8_text(value)


def _hexadecimal(value: bytes | bytearray | memoryview) -> str:
    return "\\x" + value.hex()


def _interval(value: timedelta) -> str:
    return f"{value.days} day {value.seconds}.{value.microseconds:06d} second"


_CONVERTERS: dict[type, ValueConverter] = {
    bool: lambda value: "true" if value else "false",
    int: lambda value: str(int64(value)),
    float: lambda value: repr(finite_float(value)),
    str: _text,
    **dict.fromkeys((bytes, bytearray, memoryview), _hexadecimal),
    datetime: lambda value: to_utc(value).isoformat(),
    timedelta: _interval,
}
# Every value is sent as text, which the server reads as the type of its column. It refuses text
# that does not fit, whereas a typed value might be rounded.
_DIALECT = Dialect(
    convert=by_type(_CONVERTERS),
    placeholder="${}".format,
    column_types={
        "boolean": (types.is_boolean,),
        "smallint": (types.is_int8, types.is_uint8, types.is_int16),
        "integer": (types.is_uint16, types.is_int32),
        "bigint": (types.is_integer,),
        "real": (types.is_float16, types.is_float32),
        "double precision": (types.is_float64,),
        "numeric({0.precision}, {0.scale})": (types.is_decimal,),
        "interval": (types.is_duration,),
        "text": (types.is_string, types.is_large_string),
        "bytea": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        "date": (types.is_date,),
        "time": (types.is_time,),
        "timestamptz": (is_instant,),
        "jsonb": (types.is_nested,),
    },
    row_lock=" FOR UPDATE",
)


@dataclass(frozen=True, repr=False)
class PostgresSink(TableSink):
    """Sink that writes records to a table of a PostgreSQL database, exactly once.

    It needs psycopg 3, the extra ``postgres``, on the driver; workers need nothing. Items,
    transactions and the table of epochs are as described at `SqliteSink`; here that table is in the
    schema of the sink's table. If the connection is lost during an epoch, the run fails, nothing of
    the epoch is written, and the next run continues with it. Rows are inserted with ``COPY``, which
    needs groups of records with the same columns: if the columns change from one record to the
    next, rows are sent one by one, which takes about ten times as long.

    The server reads each value as the type of its column, so a whole number fits a ``numeric``
    column, and text an ``inet`` column; 1.5 in an ``integer`` column is an error. A ``numeric``
    column with a scale, and a column of floats, round as the server does, unless `schema` has
    pyarrow types: a number that does not fit them is an error. Aware datetimes fit ``timestamptz``,
    and durations ``interval``; dicts, lists and similar values become JSON.

    The password is never shown, and is not sent to the workers. It need not be in the program:
    libpq's ``PGPASSWORD``, ``~/.pgpass`` and service files work as usual.

    Args:
        dsn: address of the database in libpq's form: ``"postgresql://user@host/name"``, or
            ``"host=... dbname=... user=..."``.
        table: name of the table, ``"hours"`` or ``"public.hours"``, case-sensitive; a tuple of
            schema and name if one of them contains a dot.
        mode: ``"insert"`` or ``"upsert"``, see `SqliteSink`.
        key: columns of the key with ``mode="upsert"``, see `SqliteSink`.
        schema: columns with which a missing table is created, see `SqliteSink`.
        epochs_schema: schema of the table of epochs; the schema of `table` if left out.

    Attributes:
        dsn_shown: the address without secrets.

    Raises:
        FlowBuildError: arguments do not fit each other, or the DSN cannot be read.
        EnvironmentProblem: psycopg is not installed.
        SinkError: when the flow runs, for the reasons described at `SqliteSink`, and for text with
            NUL characters.
        StepError: when the flow runs, an item is not a record.

    >>> PostgresSink("postgresql://ann:secret@db/sales", "public.hours").dsn_shown
    'user=ann password=*** dbname=sales host=db'
    """

    dsn: str
    table: str | tuple[str, str]
    _: KW_ONLY
    epochs_schema: str | None = None
    dsn_shown: str = field(init=False, repr=False, compare=False)

    dialect = _DIALECT

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = _name_parts(self.table)
        check_table_name(parts)
        if len(parts) > 2:
            raise FlowBuildError(
                f"table must be 'name' or 'schema.name', got {shorten(self.table)}: a name with "
                "dots in it is written as a tuple, (schema, name)"
            )
        if not isinstance(self.dsn, str):
            raise FlowTypeError(f"dsn must be text, got {type(self.dsn).__name__}")
        shown = {name: _HIDDEN if name in _SECRETS else value for name, value in self._dsn_parts()}
        object.__setattr__(self, "dsn_shown", _psycopg().conninfo.make_conninfo(**shown))

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "dsn": self.dsn_shown}

    def __str__(self) -> str:
        return f"table {'.'.join(_name_parts(self.table))!r} of {self.dsn_shown!r}"

    @override
    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state if pickles_for_driver() else {**state, "dsn": self.dsn_shown}

    @override
    def datasets(self) -> Sequence[Dataset]:
        parts = dict(self._dsn_parts())
        host = parts.get("host", "").split(",")[0]
        database = parts.get("dbname") or parts.get("user")
        # A host with a slash is the directory of a socket. Other values are from the environment.
        if not host or "/" in host or database is None:
            return ()
        port = parts.get("port", "").split(",")[0] or "5432"
        table = _name_parts(self.table)
        name = ".".join((database, *(table if len(table) > 1 else ("public", *table))))
        return (Dataset(f"postgres://{host}:{port}", name),)

    @override
    def connect(self) -> Database:
        return PostgresDatabase(self.dsn)

    @override
    def table_name(self) -> TableName:
        return _name_parts(self.table)

    @override
    def epochs_table(self, table: TableName) -> TableName:
        return (self.epochs_schema or table[0], EPOCHS_TABLE)

    @override
    def driver_errors(self) -> tuple[type[Exception], ...]:
        return (_psycopg().Error,)

    @override
    def explanation(self, error: Exception) -> str:
        text = super().explanation(error)
        for name, value in self._dsn_parts():
            if name in _SECRETS:
                text = text.replace(value, _HIDDEN).replace(quote(value), _HIDDEN)
        return text

    def _dsn_parts(self) -> list[tuple[str, str]]:
        try:
            found: Mapping[str, Any] = _psycopg().conninfo.conninfo_to_dict(self.dsn)
        except _psycopg().Error:
            # The message of libpq may show a part of the password.
            found = {"port": "unknown"}
        if not _is_parsed_safely(found):
            raise FlowBuildError(
                "dsn cannot be read: write 'postgresql://user:password@host:port/name', where "
                "special characters of the password are percent-encoded, or 'host=... dbname=... "
                "user=... password=...', where values with spaces are in single quotes"
            )
        return [(name, str(value)) for name, value in found.items() if value]


class PostgresDatabase(Database):
    """Connection to a PostgreSQL server."""

    dialect = _DIALECT

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = self._connect()

    @override
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("SELECT 1")
        except _psycopg().OperationalError:
            self._connection.close()
            self._connection = self._connect()
        with self._connection.transaction():
            yield

    @override
    def set_up_alone(self) -> None:
        self.execute("SELECT pg_advisory_xact_lock($1)", (_SET_UP_LOCK,))

    @override
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        answer = self._connection.execute(statement.encode(), parameters or None)
        return answer.fetchall() if answer.description else []

    @override
    def execute_many(self, statement: str, rows: Iterable[Row]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)

    @override
    def execute_in_turn(self, work: Iterable[tuple[str, Sequence[Row]]]) -> None:
        # The pipeline sends statements without waiting for each answer.
        with self._connection.pipeline(), self._connection.cursor() as cursor:
            for statement, rows in work:
                if len(rows) >= _BULK_ROWS:
                    self.execute_many(statement, rows)
                    continue
                for row in rows:
                    cursor.execute(statement.encode(), row)

    @override
    def load(self, table: TableName, rows: Sequence[RowGroup]) -> None:
        if len(rows) > 1 and sum(len(group.rows) for group in rows) < _BULK_ROWS * len(rows):
            # As COPY does, accept values for columns that the server generates.
            self.insert(table, rows, _OVERRIDING)
        else:
            for group in rows:
                self._copy(table, group)

    def _copy(self, table: TableName, group: RowGroup) -> None:
        names = ", ".join(map(quoted, group.columns))
        statement = f"COPY {quoted_table(table)} ({names}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in group.rows:
                copy.write_row(row)

    @override
    def find_table(self, table: TableName) -> TableName | None:
        statement = (
            "SELECT n.nspname, c.relname FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)"
        )
        found = self.execute(statement, (quoted_table(table),))
        return found[0] if found else None

    @override
    def columns_of(self, table: TableName) -> list[str]:
        # SELECT * would need a right that a role for inserts alone lacks.
        statement = (
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return [row[0] for row in self.execute(statement, (quoted_table(table),))]

    @override
    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> psycopg.Connection[Row]:
        driver = _psycopg()
        connection: psycopg.Connection[Row] = driver.connect(
            self._dsn,
            autocommit=True,
            # Placeholders of the server, so that a percent sign in a name needs no escape.
            cursor_factory=driver.RawCursor,
            client_encoding="UTF8",
            fallback_application_name="flow",
        )
        connection.isolation_level = driver.IsolationLevel.READ_COMMITTED
        # Spark commits the epoch after this transaction, so it must be on the server's disk.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection


def _psycopg() -> Any:
    with package_of_extra("postgres", "psycopg 3", "PostgresSink"):
        import psycopg
    return psycopg


def _is_parsed_safely(dsn: Mapping[str, Any]) -> bool:
    """Return True if no part of the password can be in a part of the DSN that is shown."""
    ports = str(dsn.get("port") or "").split(",")
    # An @ may come first, in the name of an abstract socket.
    locations = [str(dsn.get(name) or "")[1:] for name in ("host", "dbname")]
    return all(port.isdecimal() or not port for port in ports) and "@" not in "".join(locations)


def _name_parts(table: Any) -> tuple[Any, ...]:
    if isinstance(table, str):
        return tuple(table.split("."))
    return tuple(table) if isinstance(table, (list, tuple)) else (table,)
