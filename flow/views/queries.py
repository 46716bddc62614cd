"""Reads of a view: one key, a range of keys, and a range of windows, page by page.

Each read is one transaction, so it sees one committed epoch, which its answer names.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from flow.connectors.sql.database import Row
from flow.errors import FlowError, TimestampError, first_line, shorten
from flow.instants import Instant, from_us, instant_us
from flow.views.view_rows import By, decode
from flow.views.views_file import (
    COLUMNS,
    Ask,
    DamagedEntryError,
    ViewState,
    asking,
    file_of,
    read_state,
    view_names,
)

DEFAULT_LIMIT = 100
"""The most entries of a page, by default."""


class QueryError(FlowError, ValueError):
    """A query that a view cannot answer, such as one with an invalid limit."""


class UnknownViewError(QueryError, LookupError):
    """A query of a view that the file does not have."""


@dataclass(frozen=True)
class ViewWindow:
    """The window of an entry.

    Attributes:
        window_id: the id, unique among the key's windows.
        open_time: the open time, UTC.
        close_time: the close time, UTC.
    """

    window_id: int
    open_time: datetime
    close_time: datetime


@dataclass(frozen=True)
class Entry:
    """The newest value of a key, or of a window.

    Attributes:
        key: the key.
        value: the value, of the types that JSON has; see `flow.views.view_rows`.
        epoch: the epoch that wrote the value.
        window: the value's window; ``None`` if the value has none.
    """

    key: str
    value: Any
    epoch: int
    window: ViewWindow | None = None


@dataclass(frozen=True)
class Answer:
    """The answer about one key or window.

    Attributes:
        view: the view's name.
        run_id: id of the checkpoint, or of the batch, whose epochs are counted; ``None`` before the
            first epoch.
        epoch: the last epoch of the view, all of which the answer has; ``None`` before the first.
        entry: the entry; ``None`` if the view has none.
    """

    view: str
    run_id: str | None
    epoch: int | None
    entry: Entry | None

    @property
    def value(self) -> Any:
        """The value; ``None`` if the view has no entry."""
        return None if self.entry is None else self.entry.value


@dataclass(frozen=True)
class Page:
    """The answer about a range.

    Attributes:
        view: the view's name.
        run_id: id of the checkpoint, or of the batch, whose epochs are counted.
        epoch: the last epoch of the view, all of which the page has; the next page may have a later
            one.
        entries: the entries, in order.
        next: the place of the next page, for `after`; ``None`` on the last page.
    """

    view: str
    run_id: str | None
    epoch: int | None
    entries: tuple[Entry, ...]
    next: str | None


class _Order(Enum):
    """Order of a range: the columns that sort it, and the meaning of a place in it."""

    KEYS = ("key", "slot")
    KEYS_AND_WINDOWS = ("key", "open_us", "slot")
    WINDOWS = ("open_us", "slot")
    WINDOWS_AND_KEYS = ("open_us", "key", "slot")


_Condition: TypeAlias = tuple[str, Sequence[Any]]
"""A condition of a statement, and its parameters; it does not hold if one of them is ``None``."""


@dataclass(frozen=True)
class View:
    """The newest value of each key or window of an output.

    Attributes:
        name: the view's name, which is that of the output's step.
        by: ``"key"`` or ``"window"``, the identity of an entry.
    """

    name: str
    by: By
    _reading: Callable[[], AbstractContextManager[Ask]] = field(repr=False, compare=False)

    def get(self, key: str, open_time: Instant | None = None) -> Answer:
        """Return the entry of a key; in a view by window, that of the key's newest window.

        Args:
            key: the key.
            open_time: the open time of the window, for a view by window.

        Raises:
            QueryError: when the key is not text, or the view has no windows.
            ViewError: when the file cannot be read.
        """
        if open_time is not None:
            self._check_windows("open_time")
        conditions: list[_Condition] = [
            ("key = ?", [_checked_key("key", key)]),
            ("open_us = ?", [_micros("open_time", open_time)]),
        ]
        order = "key" if self.by == "key" else "open_us DESC, slot DESC"
        with self._reading() as ask:
            state = self._state(ask)
            entries = _entries(ask, state, conditions, order, 1)
        entry = entries[0][1] if entries else None
        return Answer(self.name, state.run_id, state.epoch, entry)

    def range(
        self,
        start: str | None = None,
        stop: str | None = None,
        *,
        limit: int | None = DEFAULT_LIMIT,
        after: str | None = None,
    ) -> Page:
        """Return the entries of a range of keys, sorted by key; of windows also by open time.

        Args:
            start: the first key; by default, the least.
            stop: the end of the keys, exclusive; by default, there is none.
            limit: the most entries of the page; ``None`` for all.
            after: `Page.next` of the page before.

        Raises:
            QueryError: when an argument is wrong.
            ViewError: when the file cannot be read.
        """
        conditions: list[_Condition] = [
            ("key >= ?", [_optional_key("start", start)]),
            ("key < ?", [_optional_key("stop", stop)]),
        ]
        order = _Order.KEYS if self.by == "key" else _Order.KEYS_AND_WINDOWS
        return self._page(conditions, order, limit, after)

    def windows(
        self,
        key: str | None = None,
        *,
        since: Instant | None = None,
        until: Instant | None = None,
        limit: int | None = DEFAULT_LIMIT,
        after: str | None = None,
    ) -> Page:
        """Return the windows of one key or of all keys, sorted by open time, then by key.

        Args:
            key: the key; by default, all keys.
            since: the first open time; by default, the least.
            until: the end of the open times, exclusive; by default, there is none.
            limit: the most entries of the page; ``None`` for all.
            after: `Page.next` of the page before.

        Raises:
            QueryError: when an argument is wrong, or the view is not by window.
            ViewError: when the file cannot be read.
        """
        self._check_windows("windows")
        conditions: list[_Condition] = [
            ("key = ?", [_optional_key("key", key)]),
            ("open_us >= ?", [_micros("since", since)]),
            ("open_us < ?", [_micros("until", until)]),
        ]
        order = _Order.WINDOWS_AND_KEYS if key is None else _Order.WINDOWS
        return self._page(conditions, order, limit, after)

    def _page(
        self, conditions: list[_Condition], order: _Order, limit: int | None, after: str | None
    ) -> Page:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise QueryError(f"limit must be a positive whole number, got {shorten(limit)}")
        columns = ", ".join(order.value)
        if after is not None:
            places = ", ".join("?" for _ in order.value)
            conditions.append((f"({columns}) > ({places})", _place(order, after)))
        with self._reading() as ask:
            state = self._state(ask)
            rows = _entries(ask, state, conditions, columns, -1 if limit is None else limit + 1)
        has_more = limit is not None and len(rows) > limit
        shown = rows[:limit]
        token = _token(order, shown[-1][0]) if has_more else None
        entries = tuple(entry for _, entry in shown)
        return Page(self.name, state.run_id, state.epoch, entries, token)

    def _state(self, ask: Ask) -> ViewState:
        state = read_state(ask, self.name)
        if state is None:
            raise UnknownViewError(f"the view {self.name!r} is no longer in its file")
        return state

    def _check_windows(self, what: str) -> None:
        if self.by != "window":
            raise QueryError(
                f"{what}: the view {self.name!r} has one entry for each key: ask it for keys, or "
                "write it with ViewSink(by='window')"
            )


_Place = dict[str, Any]
"""The columns of an entry that sort it: key, slot and open_us."""


def _entries(
    ask: Ask, state: ViewState, conditions: list[_Condition], order: str, limit: int
) -> list[tuple[_Place, Entry]]:
    given = [condition for condition in conditions if None not in condition[1]]
    where = " AND ".join(text for text, _ in given) or "TRUE"
    rows = ask(
        f"SELECT {COLUMNS} FROM {state.entries} WHERE {where} ORDER BY {order} LIMIT ?",
        (*chain.from_iterable(parameters for _, parameters in given), limit),
    )
    return [_entry(row) for row in rows]


def _entry(row: Row) -> tuple[_Place, Entry]:
    """Return an entry and its place.

    Raises:
        DamagedEntryError: when the row is damaged.
    """
    key, slot, window_id, open_us, close_us, value, epoch = row
    window = None
    try:
        if window_id is not None:
            window = ViewWindow(window_id, from_us(open_us), from_us(close_us))
        entry = Entry(key, decode(value), epoch, window)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedEntryError(f"the entry of key {shorten(key)}: {first_line(error)}") from error
    return {"key": key, "slot": slot, "open_us": open_us}, entry


def _token(order: _Order, place: _Place) -> str:
    """Return a place in an order as opaque text, safe in a URL."""
    content = [order.name, *(place[column] for column in order.value)]
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _place(order: _Order, token: str) -> Sequence[Any]:
    """Return the place in a token made by `_token` for the same order.

    Raises:
        QueryError: when the token is of another order, or was not made by `_token`.
    """
    problem = (
        f"after={shorten(token, 60)} is not the `next` of a page of this range: ask for the first "
        "page again"
    )
    try:
        name, *place = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), b"-_", True))
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise QueryError(problem) from error
    kinds = [str if column == "key" else int for column in order.value]
    is_other = name != order.name or list(map(type, place)) != kinds
    if is_other or any(isinstance(one, int) and abs(one) >> 63 for one in place):
        raise QueryError(problem)
    try:
        return [one if isinstance(one, int) else _checked_key("after", one) for one in place]
    except QueryError as error:
        raise QueryError(problem) from error


def _checked_key(name: str, key: object) -> str:
    if not isinstance(key, str):
        raise QueryError(f"{name} must be text, got {type(key).__name__} {shorten(key)}")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"{name} must be text that UTF-8 can encode, got {key!a}") from error
    return key


def _optional_key(name: str, key: object) -> str | None:
    return None if key is None else _checked_key(name, key)


def _micros(name: str, instant: Instant | None) -> int | None:
    try:
        return None if instant is None else instant_us(instant)
    except TimestampError as error:
        raise QueryError(f"{name}: {error}") from error


@dataclass(frozen=True)
class Views:
    """The views of a flow, in one file; any thread may read.

    Attributes:
        path: the file.

    Example:
        >>> import tempfile, flow.operators as op
        >>> from flow import Dataflow
        >>> from flow.testing import TestDriver
        >>> from flow.views import ViewSink
        >>> flow = Dataflow("example")
        >>> visits = op.input("visits", flow, [])
        >>> op.output("last", visits, ViewSink())
        >>> driver = TestDriver(flow)
        >>> driver.send("visits", [("ann", 3), ("bob", 5), ("ann", 4)])
        >>> driver.view("last").get("ann").value
        4
    """

    path: str

    def names(self) -> tuple[str, ...]:
        """Return the names of the views, which are those of outputs, sorted.

        Raises:
            ViewError: when the file cannot be read.
        """
        with asking(self.path) as ask:
            return view_names(ask)

    def __getitem__(self, name: str) -> View:
        """Return the view of an output.

        Raises:
            UnknownViewError: when the file has no view of this name.
            ViewError: when the file cannot be read.
        """
        with asking(self.path) as ask:
            state = read_state(ask, name)
            if state is None:
                known = ", ".join(map(repr, view_names(ask))) or "none"
                raise UnknownViewError(
                    f"{self.path} has no view {shorten(name)}; its views are: {known}"
                )
        return View(name, state.by, partial(asking, self.path))


def open(path: str | os.PathLike[str]) -> Views:
    """Open the views of a flow for reading.

    Args:
        path: the directory of the flow's checkpoint, or the file of `ViewSink(path=...)`.

    Raises:
        ViewError: when there is no file of views, or it is damaged.
    """
    views = Views(file_of(path))
    views.names()
    return views
