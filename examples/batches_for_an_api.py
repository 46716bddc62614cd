"""Batches for an API: gather items by size or timeout, post them, and keep what was refused.

``op.collect`` gathers the events of each customer. It hands a list on when it holds three, or when
its first event has waited ten seconds of system time, or when the input ends. ``op.try_map`` posts
each list; where the API raises, the list goes to the ``errors`` stream together with the exception,
and the flow runs on.

Run it; `TestDriver` needs no Spark, and there system time moves only when it is told to:

    python examples/batches_for_an_api.py

It prints:

    five events
      posted: ann, 3 events
    ten seconds later
      refused: bob, ['login']: ApiError: no such customer
      posted: ann, 1 event
    the end
      posted: cid, 2 events
"""

from __future__ import annotations

import flow.operators as op
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource


class ApiError(Exception):
    """The API refuses a request."""


def post(batch: tuple[str, list[str]]) -> str:
    """Stand in for a request to an API that takes many events at a time."""
    customer, events = batch
    if customer == "bob":
        raise ApiError("no such customer")
    return f"{customer}, {len(events)} event{'s' if len(events) > 1 else ''}"


def refusal(error: op.ItemError) -> str:
    """Say what was refused, and why; ``error.item`` is the batch itself, to be posted again."""
    customer, events = error.item
    return f"{customer}, {events}: {type(error.exception).__name__}: {error.exception}"


def show(step_id: str, text: str) -> None:
    """Print what passes a step."""
    print(f"  {step_id}: {text}")


flow = Dataflow("batches_for_an_api")
events = op.input("events", flow, TestingSource([]))
batches = op.collect("batches", events, timeout="10s", max_size=3)
posted = op.try_map("post", batches, post)
refused = op.map("refusal", posted.errors, refusal)
op.output("done", op.inspect("posted", posted.ok, show), TestingSink([]))
op.output("to_repeat", op.inspect("refused", refused, show), TestingSink([]))


def main() -> None:
    """Send some events, let time pass, send some more, and end the input."""
    with TestDriver(flow) as driver:
        print("five events")
        driver.send("events", [("ann", "login"), ("bob", "login"), ("ann", "search")])
        driver.send("events", [("ann", "buy"), ("ann", "logout")])
        print("ten seconds later")
        driver.advance("10s")
        print("the end")
        driver.send("events", [("cid", "login"), ("cid", "search")])
        driver.end()


if __name__ == "__main__":
    main()
