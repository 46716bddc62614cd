"""PostgreSQL, over psycopg 3."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from typing_extensions import override

from flow.connectors.formats.plain_values import json_text
from flow.connectors.sql import values
from flow.connectors.sql.database import Database
from flow.connectors.sql.ledger import EPOCHS_TABLE
from flow.connectors.sql.rows import Alike, Row
from flow.connectors.sql.statements import Dialect, Statements, TableName, quoted, quoted_table
from flow.connectors.sql.table_sink import TableSink, check_table_name
from flow.errors import EnvironmentProblem, FlowBuildError, FlowTypeError, shorten

if TYPE_CHECKING:
    import psycopg

_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_HIDDEN = "***"
# Any number that other programs do not use for their own locks.
_SET_UP_LOCK = 0x666C6F77
# From so many rows on it pays to make ready for many, as COPY and executemany do.
_MANY = 8
_OVERRIDING = "OVERRIDING SYSTEM VALUE "


class PostgresDialect(Dialect):
    """What PostgreSQL says its own way.

    Every value travels as text, which the server reads as the type of its column: it refuses what
    does not fit, where a typed value might be rounded.
    """

    row_lock = " FOR UPDATE"

    @override
    def form(self) -> values.Form:
        return _FORM

    @override
    def placeholder(self, number: int) -> str:
        return f"${number}"

    @override
    def column_type(self, kind: Any) -> str | None:
        if pa.types.is_dictionary(kind):
            return self.column_type(kind.value_type)
        if pa.types.is_decimal(kind):
            return f"numeric({kind.precision}, {kind.scale})"
        known = (name for is_kind, name in _COLUMN_TYPES if is_kind(kind))
        return next(known, None)


@dataclass(frozen=True, repr=False)
class PostgresSink(TableSink):
    """Write records to a table of a PostgreSQL database, exactly once.

    Needs psycopg 3, the extra ``postgres``, where the flow is started; workers need nothing. For
    what is written, and when, see `SqliteSink`. Here the numbers of epochs are kept in the schema
    of the table. When the connection is lost in the middle of an epoch, the run fails with nothing
    of the epoch written, and the next run goes on with it. Inserted rows are loaded with ``COPY``,
    which is for records with the same columns: where these differ from one record to the next,
    rows are sent one by one, and take some ten times as long.

    Values are read as the type of their column, so a whole number may go to a ``numeric`` column,
    or text to an ``inet`` one; 1.5 in an ``integer`` column is an error. Aware datetimes are for
    ``timestamptz``, durations for ``interval``; dicts, lists and the like are JSON.

    The password is never shown, and is not sent to the workers. It need not be in the program at
    all: libpq's ``PGPASSWORD``, ``~/.pgpass`` and service files are read as ever.

    Args:
        dsn: the database, as libpq has it: ``"postgresql://user@host/name"``, or
            ``"host=... dbname=... user=..."``.
        table: the table, ``"hours"`` or ``"public.hours"``, written as it is with capitals and
            all; a tuple of schema and name where there are dots in one of them.
        mode: whether to add rows or change those with the same key, see `SqliteSink`.
        key: the columns that rows are found by, see `SqliteSink`.
        schema: the columns to make the table from when it is missing, see `SqliteSink`.
        epoch_columns: columns for the run and the epoch, ``text`` and ``bigint``, see `SqliteSink`.
        epochs_schema: the schema that keeps the numbers of epochs, if not the table's own.

    Raises:
        FlowBuildError: when the arguments do not fit each other, or the DSN cannot be read.
        EnvironmentProblem: when psycopg is not installed.
        SinkError: when the flow runs; see `SqliteSink`. Text with NUL characters is among what
            cannot be written.
        StepError: when the flow runs, for items that are no records.

    >>> PostgresSink("postgresql://ann:secret@db/sales", "public.hours").dsn_shown
    'user=ann password=*** dbname=sales host=db'
    """

    dsn: str
    table: str | tuple[str, str]
    _: KW_ONLY
    epochs_schema: str | None = None
    dsn_shown: str = field(init=False, repr=False, compare=False)

    dialect = PostgresDialect()

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = _parts(self.table)
        check_table_name(parts)
        if len(parts) > 2:
            raise FlowBuildError(
                f"table must be 'name' or 'schema.name', got {shorten(self.table)}: a name with "
                "dots in it is written as a tuple, (schema, name)"
            )
        if not isinstance(self.dsn, str):
            raise FlowTypeError(f"dsn must be text, got {type(self.dsn).__name__}")
        shown = {name: _HIDDEN if name in _SECRETS else value for name, value in self._dsn_parts()}
        object.__setattr__(self, "dsn_shown", _conninfo().make_conninfo(**shown))

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "dsn": self.dsn_shown}

    def __str__(self) -> str:
        return f"table {'.'.join(_parts(self.table))!r} of {self.dsn_shown!r}"

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "dsn": self.dsn_shown}

    @override
    def connect(self) -> Database:
        return PostgresDatabase(self.dsn)

    @override
    def table_name(self) -> TableName:
        return _parts(self.table)

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
            found: Mapping[str, Any] = _conninfo().conninfo_to_dict(self.dsn)
        except _psycopg().Error:
            # What libpq says of it may show a part of the password.
            found = {"port": "unknown"}
        if not _well_read(found):
            raise FlowBuildError(
                "dsn cannot be read: write 'postgresql://user:password@host:port/name', where "
                "special characters of the password are percent-encoded, or 'host=... dbname=... "
                "user=... password=...', where values with spaces are in single quotes"
            )
        return [(name, str(value)) for name, value in found.items() if value]


class PostgresDatabase(Database):
    """A connection to a server."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = self._connected()

    @override
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("SELECT 1")
        except _psycopg().OperationalError:
            self._connection.close()
            self._connection = self._connected()
        with self._connection.transaction():
            yield

    @override
    def set_up_alone(self) -> None:
        self.ask("SELECT pg_advisory_xact_lock($1)", (_SET_UP_LOCK,))

    @override
    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        answer = self._connection.execute(statement.encode(), parameters or None)
        return answer.fetchall() if answer.description else []

    @override
    def repeat(self, statement: str, rows: Iterable[Row]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)

    @override
    def repeat_in_turn(self, work: Iterable[tuple[str, Sequence[Row]]]) -> None:
        # Without waiting for the answer to each before the next is sent.
        with self._connection.pipeline(), self._connection.cursor() as cursor:
            for statement, rows in work:
                if len(rows) >= _MANY:
                    self.repeat(statement, rows)
                    continue
                for row in rows:
                    cursor.execute(statement.encode(), row)

    @override
    def load(self, table: TableName, rows: Sequence[Alike]) -> None:
        if len(rows) > 1 and sum(len(some.rows) for some in rows) < _MANY * len(rows):
            statements = Statements(PostgresSink.dialect, table)
            # COPY takes values for columns that the server fills, too.
            insert = functools.cache(lambda columns: statements.insert(columns, _OVERRIDING))
            self.repeat_in_turn((insert(some.columns), some.rows) for some in rows)
        else:
            for some in rows:
                self._copy(table, some)

    def _copy(self, table: TableName, some: Alike) -> None:
        names = ", ".join(map(quoted, some.columns))
        statement = f"COPY {quoted_table(table)} ({names}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in some.rows:
                copy.write_row(row)

    @override
    def find_table(self, table: TableName) -> TableName | None:
        statement = (
            "SELECT n.nspname, c.relname FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)"
        )
        found = self.ask(statement, (quoted_table(table),))
        return found[0] if found else None

    @override
    def columns_of(self, table: TableName) -> list[str]:
        # Not SELECT *, for which a role that may only insert has no right.
        statement = (
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return [row[0] for row in self.ask(statement, (quoted_table(table),))]

    @override
    def close(self) -> None:
        self._connection.close()

    def _connected(self) -> psycopg.Connection[Row]:
        driver = _psycopg()
        connection: psycopg.Connection[Row] = driver.connect(
            self._dsn,
            autocommit=True,
            # Its placeholders are the server's own, so a percent sign means nothing in a name.
            cursor_factory=driver.RawCursor,
            client_encoding="UTF8",
            fallback_application_name="flow",
        )
        connection.isolation_level = driver.IsolationLevel.READ_COMMITTED
        # Spark goes on once an epoch is written, so the server must not only promise to keep it.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise EnvironmentProblem(
            f"PostgresSink needs psycopg 3, which cannot be imported ({error}): install it with "
            "pip install 'flow-windows[postgres]'"
        ) from error
    return psycopg


def _conninfo() -> Any:
    return _psycopg().conninfo


def _well_read(dsn: Mapping[str, Any]) -> bool:
    """Whether a DSN was taken apart as it was meant: else a part of the password may be shown."""
    ports = str(dsn.get("port") or "").split(",")
    # An @ comes first in the name of a socket that is no file.
    places = [str(dsn.get(name) or "")[1:] for name in ("host", "dbname")]
    return all(port.isdecimal() or not port for port in ports) and "@" not in "".join(places)


def _parts(table: Any) -> tuple[Any, ...]:
    if isinstance(table, str):
        return tuple(table.split("."))
    return tuple(table) if isinstance(table, (list, tuple)) else (table,)


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("PostgreSQL has no NUL characters in text: take them out, or write bytes")
    return values.text(value)


def _interval(value: timedelta) -> str:
    return f"{value.days} day {value.seconds}.{value.microseconds:06d} second"


_FORM = values.by_type(
    {
        type(None): values.same,
        bool: lambda value: "true" if value else "false",
        int: lambda value: str(values.whole(value)),
        float: lambda value: repr(values.finite(value)),
        str: _without_nul,
        bytes: lambda value: "\\x" + value.hex(),
        bytearray: lambda value: "\\x" + value.hex(),
        memoryview: lambda value: "\\x" + value.hex(),
        datetime: lambda value: values.in_utc(value).isoformat(),
        date: date.isoformat,
        time: time.isoformat,
        timedelta: _interval,
        Decimal: values.decimal_text,
        dict: json_text,
        list: json_text,
    }
)

_COLUMN_TYPES = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_float16, "real"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (pa.types.is_fixed_size_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "timestamptz"),
    (pa.types.is_nested, "jsonb"),
)
