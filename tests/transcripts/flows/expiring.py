"""Flows of steps whose state expires."""

from __future__ import annotations

from typing import Any

import flow.operators as op
import flow_windowing as win
from tests.support.transcript import In, Order, Out, Step, builder


@builder(shares_time=True)
def dedup(step: Step, s: In, *, ttl: str) -> Out:
    return {"out": win.dedup(step("once"), s, win.SystemClock(), ttl=ttl).down}


@builder(shares_time=True)
def dedup_records(step: Step, s: In, *, ttl: str) -> Out:
    keyed = op.key_on(step("by_user"), s, "user")
    return {"out": win.dedup(step("once"), keyed, win.SystemClock(), "id", ttl=ttl).down}


@builder(shares_time=True, **dict.fromkeys(("down", "late", "duplicates"), Order.KEY))
def dedup_by_time(
    step: Step, s: In, *, ttl: str, wait: str = "0s", scope: Any = "key", max_ahead: Any = None
) -> Out:
    """Drop repeats of ``(id, seconds)``."""
    clock: win.EventClock[Any] = win.EventClock(time_of, wait, scope=scope, max_ahead=max_ahead)
    out = win.dedup(step("once"), s, clock, id_of, ttl=ttl)
    late = op.map_value(step("value"), out.late, lambda one: (*one.value, one.reason.value))
    return {"down": out.down, "late": late, "duplicates": out.duplicates}


def id_of(value: tuple[str, float]) -> str:
    return value[0]


def time_of(value: tuple[str, float]) -> float:
    return value[1]


@builder(shares_time=True, down=Order.KEY, expired=Order.KEY)
def total_that_expires(step: Step, s: In, *, ttl: str, ttl_from: Any = "write") -> Out:
    out = op.stateful_map(step("total"), s, add, ttl=ttl, ttl_from=ttl_from)
    return {"down": out.down, "expired": out.expired}


@builder(shares_time=True, **dict.fromkeys(("down", "late", "expired"), Order.KEY))
def total_by_time(
    step: Step, s: In, *, ttl: str, wait: str = "0s", ttl_from: Any = "write", scope: Any = "key"
) -> Out:
    """Add up the amounts of ``(amount, seconds)``; zero forgets the key."""
    clock: win.EventClock[Any] = win.EventClock(time_of, wait, scope=scope)
    out = win.stateful_map(step("total"), s, clock, add_amount, ttl=ttl, ttl_from=ttl_from)
    late = op.map_value(step("value"), out.late, lambda one: (*one.value, one.reason.value))
    return {"down": out.down, "late": late, "expired": out.expired}


@builder(shares_time=True, **dict.fromkeys(("down", "expired"), Order.KEY))
def changes_by_time(step: Step, s: In, *, ttl: str, wait: str = "0s") -> Out:
    """Emit an amount of ``(amount, seconds)`` that differs from the one before."""
    clock: win.EventClock[Any] = win.EventClock(time_of, wait)
    out = win.stateful_flat_map(step("last"), s, clock, change_of_amount, ttl=ttl)
    return {"down": out.down, "expired": out.expired}


@builder(shares_time=True, down=Order.KEY, expired=Order.KEY)
def changes_that_expire(step: Step, s: In, *, ttl: str) -> Out:
    out = op.stateful_flat_map(step("last"), s, change, ttl=ttl)
    return {"down": out.down, "expired": out.expired}


@builder(shares_time=True, down=Order.KEY, expired=Order.KEY)
def join_that_expires(step: Step, left: In, right: In, *, ttl: str, mode: Any = "last") -> Out:
    out = op.join(step("join"), left, right, insert_mode=mode, ttl=ttl)
    return {"down": out.down, "expired": out.expired}


def add(total: int | None, value: int) -> tuple[int | None, int]:
    """Add up; a zero forgets the key."""
    total = (total or 0) + value
    return (total if value else None), total


def add_amount(total: int | None, value: tuple[int, float]) -> tuple[int | None, int]:
    return add(total, value[0])


def change_of_amount(last: int | None, value: tuple[int, float]) -> tuple[int, list[int]]:
    return change(last, value[0])


def change(last: int | None, value: int) -> tuple[int, list[int]]:
    """Emit a value that differs from the last."""
    return value, [] if value == last else [value]
