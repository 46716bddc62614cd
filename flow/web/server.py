"""The server of the live page: a thread that accepts, and a short-lived thread per connection."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from flow.config.web_address import WebAddress
from flow.errors import FlowBuildError
from flow.web.access import Access
from flow.web.hub import Hub
from flow.web.inside import Inside
from flow.web.requests import PageHandler
from flow.web.views import ViewSinks

MAX_CONNECTIONS = 64
"""The number of connections that are served at once; further ones are closed."""

LAST_SECONDS = 1.0
"""The longest time that the end of a run waits for readers to take the last status."""


class PageServer:
    """The server, from its construction to `close`.

    Args:
        access: the address and the rule of access.
        hub: the source of statuses.
        views: the sinks of the run's views; none by default.
        inside: the contents of steps; not shown by default.

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
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
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
            self.shutdown_request(request)
            return
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
            self._places.release()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show errors except those of clients that have gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
