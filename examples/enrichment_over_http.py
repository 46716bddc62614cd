"""Enrichment over HTTP: look the customer of each order up in an API, many requests at a time.

    orders ─ rate ─┬─ ok ───── rated
                   └─ errors ─ unrated

``op.map_async`` makes up to 50 requests at a time, with one client for each worker. If the API is
busy, a request is repeated, up to three attempts in all. If the API does not know the customer, the
order goes to the ``errors`` stream at once: the retry names the exceptions after which it repeats.

All requests of an epoch end before the epoch does. A flow that was killed makes the requests of its
last epoch again, with the same ``op.call_id()``. An API that takes it as the header
``Idempotency-Key`` recognises a request that it has already served.

The client here is made of the streams of ``asyncio``. Any async client will do, such as
``resource=httpx.AsyncClient``.

Run it; the API is a small server in the same process:

    python examples/enrichment_over_http.py

It prints, in any order:

    order 1 of ann: rated A
    order 2 of bob: rated B
    order 3 of ann: rated A
    order 4 of eve: UnknownCustomerError, eve
    order 5 of cid: rated C
    the API was busy 2 times, and rated 4 orders
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.stdio import StdOutSink

ORDERS = [
    {"order": number, "customer": customer}
    for number, customer in enumerate(["ann", "bob", "ann", "eve", "cid"], 1)
]
RATINGS = {"ann": "A", "bob": "B", "cid": "C"}
BUSY = ("bob", "cid")
"""The customers at whose first request the API is busy."""
KEY = "Idempotency-Key"


class BusyError(Exception):
    """The API asks for another attempt."""


class UnknownCustomerError(Exception):
    """The API does not know a customer."""


class Client:
    """A client of the API.

    Args:
        port: the port of the API on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    async def rating(self, customer: str) -> str:
        """Return the rating of a customer.

        Raises:
            BusyError: when the API is busy.
            UnknownCustomerError: when the API does not know the customer.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(f"GET /{customer} HTTP/1.0\r\n{KEY}: {op.call_id()}\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        match int(head.split()[1]):
            case 200:
                return str(json.loads(body)["rating"])
            case 503:
                raise BusyError(customer)
            case _:
                raise UnknownCustomerError(customer)


async def rate(client: Client, order: dict[str, Any]) -> dict[str, Any]:
    """Return an order with the rating of its customer."""
    return {**order, "rating": await client.rating(order["customer"])}


def make_flow(port: int) -> Dataflow:
    """Return a flow that rates orders with the API at a port of this machine."""
    graph = Dataflow("enrichment_over_http")
    orders = op.input("orders", graph, ORDERS)
    rated = op.map_async(
        "rate",
        orders,
        rate,
        resource=partial(Client, port),
        capacity=50,
        timeout="5s",
        retry=op.Retry(3, "20ms", on=(BusyError, OSError)),
        on_error="errors",
    )
    op.output(
        "rated",
        rated.ok,
        StdOutSink(format="order {order} of {customer}: rated {rating}".format_map),
    )
    op.output("unrated", rated.errors, StdOutSink(format=_text_of))
    return graph


def _text_of(error: op.ItemError) -> str:
    """Return a line about an order without a rating."""
    problem = f"{type(error.exception).__name__}, {error.exception}"
    return "order {order} of {customer}: ".format_map(error.item) + problem


@contextmanager
def serving() -> Generator[tuple[int, Counter[str]], None, None]:
    """Run an API in this process; yields its port, and the counts of its answers."""
    answers: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    rated: set[str] = set()

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            customer = self.path.strip("/")
            asked[customer] += 1
            if customer in BUSY and asked[customer] == 1:
                answers["busy"] += 1
                self.send_error(503, "busy")
            elif customer not in RATINGS:
                self.send_error(404, "no such customer")
            else:
                rated.add(self.headers[KEY])
                answers["rated"] = len(rated)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"rating": RATINGS[customer]}).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield server.server_port, answers
        finally:
            server.shutdown()


def main() -> None:
    """Run the flow, and print the counts of the API's answers."""
    with serving() as (port, answers):
        run(make_flow(port))
    print(f"the API was busy {answers['busy']} times, and rated {answers['rated']} orders")


if __name__ == "__main__":
    main()
