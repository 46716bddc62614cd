"""A sink of a view, driven as the engine drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flow.connectors.sink import CheckpointContext, OutputContext, WriteContext
from flow.views import View, ViewSink, open
from flow_windowing import WindowMetadata

STEP = "totals"


@dataclass
class ViewRuns:
    """The runs of a flow with a view.

    Attributes:
        directory: the directory of the checkpoint.
        options: arguments of the sink.
        last_epoch: the last epoch that the checkpoint has as done.
    """

    directory: Path
    options: dict[str, Any] = field(default_factory=dict)
    last_epoch: int = -1
    rewinds: int = 0
    keep_epochs: int = 100
    run_id: str = "run"
    sink: ViewSink | None = None

    def start(self) -> None:
        """Start a run; one that has not been stopped counts as killed."""
        self.stop()
        checkpoint = CheckpointContext(
            str(self.directory),
            str(self.directory),
            self.last_epoch,
            self.rewinds,
            self.keep_epochs,
        )
        self.sink = ViewSink(**self.options)
        try:
            self.sink.attach(OutputContext("flow", STEP, checkpoint))
            self.sink.open(self.run_id, self.last_epoch >= 0)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the run."""
        if self.sink is not None:
            self.sink.close()
            self.sink = None

    def epoch(self, *partitions: Sequence[Any], is_logged: bool = True) -> None:
        """Run the next epoch.

        Args:
            partitions: the items of each Spark partition.
            is_logged: False if the run dies before the checkpoint has the epoch as done.
        """
        if self.sink is None:
            self.start()
        assert self.sink is not None
        number = self.last_epoch + 1
        messages = [
            self.sink.write(WriteContext(STEP, number, part, self.run_id), iter([list(items)]))
            for part, items in enumerate(partitions)
        ]
        self.sink.commit(number, messages)
        if is_logged:
            self.last_epoch = number

    def rewind(self, epoch: int) -> None:
        """Set the checkpoint back."""
        self.stop()
        self.last_epoch, self.rewinds = epoch, self.rewinds + 1

    @property
    def view(self) -> View:
        """The view, as a reader opens it."""
        return open(self.directory)[STEP]

    def content(self) -> dict[str, Any]:
        """Return the value of each key."""
        return {entry.key: entry.value for entry in self.view.range(limit=None).entries}

    def windows(self) -> dict[tuple[str, int], Any]:
        """Return the value of each window by key and number."""
        entries = self.view.range(limit=None).entries
        return {(one.key, one.window.window_id): one.value for one in entries if one.window}


def hour(number: int) -> WindowMetadata:
    """Return the metadata of an hour of the first of May."""
    start = datetime(2024, 5, 1, tzinfo=UTC).timestamp()
    times = (datetime.fromtimestamp(start + 3600 * (number + n), UTC) for n in (0, 1))
    return WindowMetadata(number, *times)
