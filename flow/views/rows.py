"""Rows of a view: made from items in the workers, at most one for each key or window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from flow.columns.record_batches import is_retraction, is_window, rows_as_dicts
from flow.connectors.sink import SinkBatch
from flow.errors import RAISED, brief, step_error
from flow.fields import FieldPath
from flow.instants import datetime_us
from flow.views.encoding import REFUSED, encode

By: TypeAlias = Literal["key", "window"]
"""The identity of an entry of a view: its key, or its key and window."""

KeyReader: TypeAlias = Callable[[Any], Any]


class ViewRow(NamedTuple):
    """A new value of an entry of a view, or its removal.

    Attributes:
        key: the key.
        slot: the id of the window in a view by window, 0 in a view by key.
        window_id: the id of the value's window; ``None`` if the value has no window.
        open_us: the open time of the window, in µs.
        close_us: the close time of the window, in µs.
        value: the value as JSON; ``None`` removes the entry.
        is_retraction: True if only a value of this window is removed.
    """

    key: str
    slot: int
    window_id: int | None
    open_us: int | None
    close_us: int | None
    value: str | None
    is_retraction: bool = False


def last_rows(rows: Iterable[ViewRow]) -> list[ViewRow]:
    """Return the last row of each entry.

    A retraction of another window's value does not replace a row.
    """
    found: dict[tuple[str, int], ViewRow] = {}
    for row in rows:
        before = found.get((row.key, row.slot))
        if before is None or before.window_id == row.window_id or not row.is_retraction:
            found[row.key, row.slot] = row
    return list(found.values())


@dataclass(frozen=True)
class RowMaker:
    """Conversion of the items of an output to rows of its view.

    Attributes:
        step_id: id of the output's step.
        by: the identity of an entry.
        key: a function or a field's path that gives the key of an item; ``None`` for items that are
            ``(key, value)`` pairs.
    """

    step_id: str
    by: By
    key: KeyReader | str | None

    def rows(self, batches: Iterable[SinkBatch]) -> list[ViewRow]:
        """Return the last row of each entry.

        Raises:
            StepError: when an item has no key, or its value cannot be in a view.
        """
        return last_rows(self._row(*of_item) for of_item in self._pairs(batches))

    def _pairs(self, batches: Iterable[SinkBatch]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the key, the value and the item of each item."""
        for batch in batches:
            for item in batch if isinstance(batch, list) else rows_as_dicts(batch):
                if self.key is not None:
                    yield self._checked(self._key_of(item), item), item, item
                elif isinstance(item, tuple) and len(item) == 2:
                    yield self._checked(item[0], item), item[1], item
                else:
                    problem = (
                        "items of a view must be (key, value) pairs, but this item is a "
                        f"{type(item).__name__}: use op.key_on before the output, or "
                        "ViewSink(key=...)"
                    )
                    raise step_error(self.step_id, problem, item=item)

    def _key_of(self, item: Any) -> Any:
        read = FieldPath(self.key).value_in if isinstance(self.key, str) else self.key
        try:
            return None if read is None else read(item)
        except RAISED as error:
            problem = f"reading the key of the view raised {brief(error)}"
            raise step_error(self.step_id, problem, item=item) from error

    def _checked(self, key: Any, item: Any) -> str:
        if not isinstance(key, str):
            problem = f"a key of a view must be text, got {type(key).__name__} {key!r}"
            raise step_error(self.step_id, problem, item=item)
        try:
            key.encode()
        except UnicodeEncodeError as error:
            problem = f"a key of a view must be text that UTF-8 can encode, got {key!a}"
            raise step_error(self.step_id, problem, item=item) from error
        return str(key)

    def _row(self, key: str, value: Any, item: Any) -> ViewRow:
        window, inner = _split(value)
        if window is None and self.by == "window":
            problem = (
                "by='window' needs results of windows, (key, (metadata, value)), but the value is "
                f"a {type(value).__name__}: give the output a windowing step's stream, or use "
                "by='key'"
            )
            raise step_error(self.step_id, problem, key=key, item=item)
        retracts = is_retraction(inner)
        text = None if inner is None or retracts else self._encoded(key, inner)
        if window is None:
            return ViewRow(key, 0, None, None, None, text, retracts)
        slot = window.window_id if self.by == "window" else 0
        bounds = datetime_us(window.open_time), datetime_us(window.close_time)
        return ViewRow(key, slot, window.window_id, *bounds, text, retracts)

    def _encoded(self, key: str, value: Any) -> str:
        try:
            return encode(value)
        except REFUSED as error:
            problem = f"the view cannot hold a value of type {type(value).__name__}: {error}"
            raise step_error(self.step_id, problem, key=key, item=value) from error


def _split(value: Any) -> tuple[Any, Any]:
    """Return the window and the inner value of a windowing step's result; else no window."""
    if isinstance(value, tuple) and len(value) == 2 and not hasattr(value, "_asdict"):
        window = value[0]
        if is_window(window):
            return window, value[1]
    return None, value
