"""The live page of a run, and its server.

The server has a thread that accepts, and a short-lived thread per connection. A connection whose
request has not arrived whole has its place for a limited time, and ends before that if a newer one
finds no place: clients that send nothing, or little at a time, keep no other request from its
answer.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from flow.config.flow_config import WebAddress, web_address
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError
from flow.monitoring.recorder import Recorder
from flow.web.hub import Hub
from flow.web.inside import Inside, StateReader, ViewSinks, view_sinks
from flow.web.page_access import TOKEN_VARIABLE, Access
from flow.web.requests import PageHandler

MAX_CONNECTIONS = 64
"""The number of connections that are served at once; further ones are closed."""

MAX_ANSWERS = 48
"""The number of answers at once, except those to probes, for which the other places are."""

REQUEST_SECONDS = 10.0
"""The longest time from the start of a connection to the end of its request."""

LAST_SECONDS = 1.0
"""The longest time that the end of a run waits for readers to take the last status."""


class PageServer:
    """The server, from its construction to `close`.

    Args:
        access: the address and the rule of access.
        hub: the source of statuses.
        views: the sinks of the run's views; none by default.
        inside: the contents of steps; not shown by default.

    Attributes:
        address: the address, with the port that the server listens on.
        url: the URL of the page, with the token.

    Raises:
        FlowBuildError: if the address cannot be used.
    """

    def __init__(
        self,
        access: Access,
        hub: Hub,
        views: ViewSinks = MappingProxyType({}),
        inside: Inside | None = None,
    ) -> None:
        self._hub = hub
        parts = {"hub": hub, "access": access, "views": views, "inside": inside or Inside()}
        handler = type("Handler", (PageHandler,), parts)
        try:
            self._server = _Server(access.address, handler)
        except OSError as error:
            raise FlowBuildError(
                f"web: the page cannot listen on {access.address}: {error.strerror or error}; "
                "choose another port, or port 0 for a free one"
            ) from error
        self.address = access.address._replace(port=int(self._server.server_address[1]))
        self.url = replace(access, address=self.address).url
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="flow-web", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop: no more connections, and the last status for readers that take it in time."""
        self._server.shutdown()
        self._server.server_close()
        self._hub.wait_until_left(LAST_SECONDS)
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: WebAddress, handler: type[PageHandler]) -> None:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        self.address_family = family
        self.answers = threading.BoundedSemaphore(MAX_ANSWERS)
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        # Of connections whose requests have not arrived, the oldest first.
        self._deadlines: dict[socket.socket, float] = {}
        super().__init__((address.host, address.port), handler)

    @override
    def server_bind(self) -> None:
        """Bind the socket, without a look-up of the machine's name, which may take seconds."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self._end(list(self._deadlines)[:1])
            if not self._places.acquire(timeout=1.0):
                self.shutdown_request(request)
                return
        self._deadlines[request] = time.monotonic() + REQUEST_SECONDS
        try:
            super().process_request(request, client_address)
        except BaseException:  # No thread was started, so none gives the place back.
            self._places.release()
            raise

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, and free its place among those answered at a time."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.arrive(request)
            self._places.release()

    @override
    def service_actions(self) -> None:
        """End connections whose requests are overdue; called after each look for new ones."""
        now = time.monotonic()
        self._end(each for each, end in list(self._deadlines.items()) if end < now)

    def arrive(self, request: socket.socket) -> bool:
        """Note that a whole request has arrived; return False if its connection was ended."""
        return self._deadlines.pop(request, None) is not None

    def _end(self, requests: Iterable[socket.socket]) -> None:
        """End connections, unless their requests arrive now; their threads free the places."""
        for request in filter(self.arrive, requests):
            with contextlib.suppress(OSError):  # The client may have gone.
                request.shutdown(socket.SHUT_RDWR)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show errors except those of clients that have gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


logger = logging.getLogger("flow")


class LivePage:
    """The reports of a run, published to readers of its page.

    Args:
        recorder: the recorder of the run.
        hub: the hub of the readers.
        inside: the contents of steps, for readers.
    """

    def __init__(self, recorder: Recorder, hub: Hub, inside: Inside | None = None) -> None:
        self._recorder = recorder
        self._hub = hub
        self._inside = inside or Inside()

    def start(self, reader: StateReader | None = None) -> None:
        """Publish that the run has a session, and begins.

        Args:
            reader: the reader of the run's state; ``None`` without a checkpoint.
        """
        self._inside.reader = reader
        self._hub.publish(self._recorder.start())

    def report(self, report: EpochReport) -> None:
        """Publish the status after an epoch."""
        self._hub.publish(self._recorder.add(report))

    def end(self, summary: Summary) -> None:
        """Publish the status after the run."""
        self._hub.publish(self._recorder.end(summary))

    def fail(self, error: BaseException) -> None:
        """Publish the status after a failure of the run."""
        has_checkpoint = self._inside.reader is not None
        self._hub.publish(self._recorder.fail(error, has_checkpoint))


@contextlib.contextmanager
def live_page(
    address: str,
    plan: Plan,
    engine: str,
    trigger_seconds: float | None = None,
    shows_values: bool = False,
    checkpoint: str | None = None,
) -> Iterator[LivePage]:
    """Serve the page of a run while the block runs; an error of the block is the run's.

    Args:
        address: the address, ``HOST:PORT``.
        plan: the compiled flow.
        engine: the name of the engine.
        trigger_seconds: the trigger's interval; ``None`` without one.
        shows_values: True if the page shows keys and values.
        checkpoint: the directory of the run's checkpoint, if another process opens the views.

    Raises:
        FlowBuildError: if the address cannot be used.
    """
    recorder = Recorder(plan, engine, trigger_seconds)
    hub = Hub(recorder.status)
    inside = Inside(shows_values)
    access = Access.to(web_address(address))
    views = view_sinks(plan)
    if checkpoint is not None:
        for sink in views.values():
            sink.locate(checkpoint)
    server = PageServer(access, hub, views, inside)
    about = "" if access.token is None else f" ({TOKEN_VARIABLE} sets the token)"
    logger.info("live page: %s%s", server.url, about)
    page = LivePage(recorder, hub, inside)
    try:
        yield page
    except BaseException as error:
        page.fail(error)
        raise
    finally:
        server.close()
