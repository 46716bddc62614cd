"""The live page of a run: its recorder, its hub and its server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from flow.config.web_address import web_address
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.plan.plan import Plan
from flow.monitoring.recorder import Recorder
from flow.web.access import TOKEN_VARIABLE, Access
from flow.web.hub import Hub
from flow.web.inside import Inside, StateReader
from flow.web.server import PageServer
from flow.web.views import view_sinks

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
        self._hub.publish(self._recorder.fail(error))


@contextlib.contextmanager
def live_page(
    address: str,
    plan: Plan,
    engine: str,
    trigger_seconds: float | None = None,
    shows_values: bool = False,
) -> Iterator[LivePage]:
    """Serve the page of a run while the block runs; an error of the block is the run's.

    Args:
        address: the address, ``HOST:PORT``.
        plan: the compiled flow.
        engine: the name of the engine.
        trigger_seconds: the trigger's interval; ``None`` without one.
        shows_values: True if the page shows keys and values.

    Raises:
        FlowBuildError: if the address cannot be used.
    """
    recorder = Recorder(plan, engine, trigger_seconds)
    hub = Hub(recorder.status)
    inside = Inside(shows_values)
    access = Access.to(web_address(address))
    server = PageServer(access, hub, view_sinks(plan), inside)
    if access.token is None:
        logger.info("live page: http://%s/", server.address)
    else:
        at = f"http://{server.address}/?token={access.token}"
        logger.info("live page: %s (%s sets the token)", at, TOKEN_VARIABLE)
    page = LivePage(recorder, hub, inside)
    try:
        yield page
    except BaseException as error:
        page.fail(error)
        raise
    finally:
        server.close()
