"""Batches for an API: post events over HTTP, three at a time, and keep refused lists.

    events ─ by_customer ─ threes ─ down ─ post ─┬─ ok ───── posted
                                                 └─ errors ─ refused

``CountWindower(3)`` closes a window when it has three events, and ``partial=True`` also closes
windows that are not full when the input ends. ``op.try_map`` posts each list. If the API refuses a
list, the list goes to the ``errors`` stream together with the exception, and the flow continues.

A flow that was killed replays its last epoch and posts its batches again. Customer and window id
identify a batch, so together they are a key by which the API detects duplicates: many APIs accept
one in the header ``Idempotency-Key``.

If a batch must not wait long, use ``op.collect``, which collects by size or timeout.

Run it; the API is a small server in the same process:

    python examples/batches_for_an_api.py

It prints, the customers in any order:

    posted: ann-0, 3 events
    posted: ann-1, 1 event
    posted: cid-0, 2 events
    refused: bob-0, HTTPError: HTTP Error 404: no such customer
    the API holds ann-0: login, search, buy
    the API holds ann-1: logout
    the API holds cid-0: login, search
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

EVENTS = Path(__file__).parent / "samples" / "events.jsonl"
KEY = "Idempotency-Key"

Batch = tuple[str, tuple[win.WindowMetadata, list[dict[str, Any]]]]


def key_of(batch: Batch) -> str:
    """Return the key of a batch for the API, the same whenever the batch is posted."""
    customer, (window, _) = batch
    return f"{customer}-{window.window_id}"


def post(url: str, batch: Batch) -> str:
    """Post a batch, and return a line about it.

    Raises:
        HTTPError: when the API refuses the batch.
    """
    customer, (_, events) = batch
    body = json.dumps([event["event"] for event in events]).encode()
    request = urllib.request.Request(f"{url}/{customer}", body, {KEY: key_of(batch)})
    urllib.request.urlopen(request, timeout=10).close()
    return f"{key_of(batch)}, {len(events)} event{'s' if len(events) > 1 else ''}"


def make_flow(url: str, path: Path = EVENTS) -> Dataflow:
    """Return a flow that posts the events of a file to the API at a URL."""
    graph = Dataflow("batches_for_an_api")
    events = op.input("events", graph, JsonLinesSource(path))
    threes = win.collect_window(
        "threes",
        op.key_on("by_customer", events, "customer"),
        clock=win.SystemClock(),
        windower=win.CountWindower(3, partial=True),
    )
    posted = op.try_map("post", threes.down, lambda batch: post(url, batch))
    op.output("posted", posted.ok, StdOutSink(format="posted: {}".format))
    op.output(
        "refused",
        posted.errors,
        StdOutSink(format=lambda error: f"refused: {key_of(error.item)}, {error.exception}"),
    )
    return graph


@contextmanager
def serving() -> Generator[tuple[str, dict[str, list[str]]], None, None]:
    """Run an API in this process; yields its URL, and the batches that it has accepted, by key."""
    taken: dict[str, list[str]] = {}

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/bob":
                self.send_error(404, "no such customer")
                return
            taken[self.headers[KEY]] = events
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", taken
        finally:
            server.shutdown()


def main() -> None:
    """Run the flow, and then print the batches that the API has accepted."""
    with serving() as (url, taken):
        run(make_flow(url))
    for key, events in sorted(taken.items()):
        print(f"the API holds {key}: {', '.join(events)}")


if __name__ == "__main__":
    main()
