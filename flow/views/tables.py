"""Tables of a file of views.

One SQLite file holds the views of a flow's outputs::

    views      number  name    flow_id  by      run_id  epoch  rewinds  undo_to  writer
               1       hourly  flights  window  1a2b…   41     0        0        9f8e…
    entries_1  key  slot  window_id  open_us  close_us  value  epoch
    undo_1     at_epoch  key  slot  window_id  open_us  close_us  value  epoch

`epoch` of a view is its last committed epoch. `entries_<n>` has the newest value of each key or
window as JSON, with the epoch that wrote the value. `undo_<n>` has the entries that an epoch
replaced, as they were before; a null value stands for an entry that did not exist. So the view can
be set back to each epoch from `undo_to` on. `writer` identifies the sink that may write the view.

The cost of an epoch follows the entries that it changes. Times are int64 µs since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from flow.connectors.sql.rows import Row
from flow.format_version import VERSION, unknown_format
from flow.views.rows import By

APPLICATION_ID = 0x666C7776
"""The mark of a file of views in the header of an SQLite file: ``flwv``."""

_COLUMNS = "key, slot, window_id, open_us, close_us, value, epoch"


Ask: TypeAlias = Callable[..., list[Row]]
"""A function that runs a statement with its parameters, and returns its rows."""


@dataclass(frozen=True)
class ViewState:
    """The row of a view in the table of views; the module describes the fields."""

    number: int
    name: str
    flow_id: str
    by: By
    run_id: str | None = None
    epoch: int | None = None
    rewinds: int = 0
    undo_to: int | None = None
    writer: str = ""

    @property
    def entries(self) -> str:
        """The name of the table of entries."""
        return f"entries_{self.number}"

    @property
    def undo(self) -> str:
        """The name of the table of replaced entries."""
        return f"undo_{self.number}"

    @property
    def columns(self) -> str:
        """The columns of the table of entries, for a statement."""
        return _COLUMNS


_FIELDS = ", ".join(ViewState.__dataclass_fields__)


def make_schema(ask: Ask) -> None:
    """Create the table of views in an empty database."""
    ask(
        "CREATE TABLE views (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, "
        "flow_id TEXT NOT NULL, by TEXT NOT NULL, run_id TEXT, epoch INTEGER, "
        "rewinds INTEGER NOT NULL, undo_to INTEGER, writer TEXT NOT NULL)"
    )
    ask(f"PRAGMA application_id = {APPLICATION_ID}")
    ask(f"PRAGMA user_version = {VERSION}")


def format_problem(ask: Ask) -> str | None:
    """Return the reason why a database is no file of views; ``None`` if it is one.

    An empty database is none either.
    """
    ((mark,),) = ask("PRAGMA application_id")
    ((version,),) = ask("PRAGMA user_version")
    if mark != APPLICATION_ID:
        return "it is the database of another program"
    return None if version == VERSION else unknown_format("it", version, "file")


def is_empty(ask: Ask) -> bool:
    """Return True if a database has no tables."""
    return not ask("SELECT 1 FROM sqlite_master LIMIT 1")


def add_view(ask: Ask, name: str, flow_id: str, by: By) -> ViewState:
    """Add a view, with its tables."""
    ((number,),) = ask("SELECT coalesce(max(number), 0) + 1 FROM views")
    state = ViewState(number, name, flow_id, by)
    values = "window_id INTEGER, open_us INTEGER, close_us INTEGER"
    ask(
        f"CREATE TABLE {state.entries} (key TEXT NOT NULL, slot INTEGER NOT NULL, {values}, "
        "value TEXT NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY (key, slot)) WITHOUT ROWID"
    )
    ask(
        f"CREATE TABLE {state.undo} (at_epoch INTEGER NOT NULL, key TEXT NOT NULL, "
        f"slot INTEGER NOT NULL, {values}, value TEXT, epoch INTEGER, "
        "PRIMARY KEY (at_epoch, key, slot)) WITHOUT ROWID"
    )
    if by == "window":
        ask(f"CREATE INDEX times_{number} ON {state.entries} (open_us, key, slot)")
        ask(f"CREATE INDEX windows_{number} ON {state.entries} (key, open_us, slot)")
    places = ", ".join("?" for _ in ViewState.__dataclass_fields__)
    ask(f"INSERT INTO views ({_FIELDS}) VALUES ({places})", tuple(vars(state).values()))
    return state


def read_state(ask: Ask, name: str) -> ViewState | None:
    """Return the state of a view; ``None`` if the file does not have the view."""
    found = ask(f"SELECT {_FIELDS} FROM views WHERE name = ?", (name,))
    return ViewState(*found[0]) if found else None


def write_state(ask: Ask, state: ViewState) -> None:
    """Replace the state of a view."""
    ask(
        "UPDATE views SET run_id = ?, epoch = ?, rewinds = ?, undo_to = ?, writer = ? "
        "WHERE number = ?",
        (state.run_id, state.epoch, state.rewinds, state.undo_to, state.writer, state.number),
    )


def view_names(ask: Ask) -> tuple[str, ...]:
    """Return the names of the views of a file, sorted."""
    return tuple(name for (name,) in ask("SELECT name FROM views ORDER BY name"))
