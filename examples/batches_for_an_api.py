"""Batches for an API: gather items by size or timeout, post them, and keep what was refused.

``op.collect`` gathers the events of each customer and hands a list on when it holds three, or when
its first event has waited ten seconds of system time. ``op.try_map`` posts each list; where the API
raises, the list goes to the ``errors`` stream together with the exception, and the flow runs on.

Run it; `TestDriver` needs no Spark, and system time moves when it is told to:

    python examples/batches_for_an_api.py

It prints:

    after four events
      ann: ok, 3 accepted
    ten seconds later
      ann: ok, 1 accepted
      bob: ApiError: bob is not a customer ['login']
    at the end
      cid: ok, 2 accepted
"""

from __future__ import annotations

import flow.operators as op
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource


class ApiError(Exception):
    """What the API answers when it refuses a request."""


def post(request: tuple[str, list[str]]) -> str:
    """Stand in for an HTTP request: one call for many events."""
    customer, events = request
    if customer == "bob":
        raise ApiError("bob is not a customer")
    return f"{customer}: ok, {len(events)} accepted"


def describe(error: op.ItemError) -> str:
    """Say what was refused, and why: the list itself is kept, to be sent again."""
    customer, events = error.item
    return f"{customer}: {type(error.exception).__name__}: {error.exception} {events}"


flow = Dataflow("batches_for_an_api")
events = op.input("events", flow, TestingSource([]))
batches = op.collect("batches", events, timeout="10s", max_size=3)
posted = op.try_map("post", batches, post)
op.output("posted", posted.ok, TestingSink([]))
op.output("refused", op.map("describe", posted.errors, describe), TestingSink([]))


def main() -> None:
    """Send events in three epochs and print what comes of each."""
    with TestDriver(flow) as driver:
        shown: set[str] = set()

        def show(when: str) -> None:
            lines = sorted({*driver.received("posted"), *driver.received("refused")} - shown)
            shown.update(lines)
            print(when, *lines, sep="\n  ")

        driver.send("events", [("ann", "login"), ("bob", "login")])
        driver.send("events", [("ann", "search"), ("ann", "buy"), ("ann", "logout")])
        show("after five events")
        driver.advance("10s")
        show("ten seconds later")
        driver.send("events", [("cid", "login"), ("cid", "search")])
        driver.end()
        show("at the end")


if __name__ == "__main__":
    main()
