"""Detection of messages that were lost on the broker before the flow read them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from flow.connectors.kafka.broker.cluster import Ends, TopicPartition
from flow.errors import SourceError

OnDataLoss: TypeAlias = Literal["fail", "warn"]
"""Action when messages are lost: stop the run, or warn and continue with the rest."""

DOUBT_SECONDS = 5.0
"""Time for which a partition must be missing or too short before it counts as lost.

A broker that has just started may report too little.
"""

_REMEDY = (
    "on_data_loss='warn' goes on with what is left; to start elsewhere, reset the step with "
    "RecoveryConfig(reset_steps=[...])"
)

logger = logging.getLogger("flow")


class LossWatch:
    """Comparison of the flow's offsets with those of the brokers.

    Args:
        on_data_loss: action for a loss.
        clock: monotonic clock, in seconds.

    Attributes:
        lost: partitions that are missing or too short beyond doubt.
    """

    def __init__(
        self, on_data_loss: OnDataLoss, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_data_loss = on_data_loss
        self._clock = clock
        self._doubted: dict[TopicPartition, float] = {}
        self._warned: set[str] = set()
        self.lost: set[TopicPartition] = set()

    @property
    def doubted(self) -> set[TopicPartition]:
        """Partitions that have seemed missing or too short for less than `DOUBT_SECONDS`."""
        return {partition for partition in self._doubted if not self._is_certain(partition)}

    def offsets_after_losses(
        self,
        offsets: Ends,
        latest: Ends,
        to_read: Mapping[TopicPartition, int],
        earliest: Callable[[list[TopicPartition]], Ends],
    ) -> Ends:
        """Return the offsets of partitions that must continue elsewhere after a loss.

        Args:
            offsets: the flow's offsets.
            latest: end offsets of the partitions that exist.
            to_read: number of messages to read now, by partition.
            earliest: function that returns the first offsets of partitions.

        Raises:
            SourceError: messages are lost, and `on_data_loss` is ``"fail"``.
        """
        shrunk = self._shrunk(offsets, latest)
        begins = earliest(list(dict.fromkeys([*to_read, *shrunk])))
        moved: Ends = {}
        for partition, first in begins.items():
            if partition in shrunk:
                moved[partition] = first
            elif first > offsets[partition]:
                self._report(
                    f"messages {offsets[partition]:,} to {first - 1:,} of {partition} were "
                    "deleted on the broker before the flow read them"
                )
                moved[partition] = first
        return moved

    def warn_of_deleted(self, starts: Ends, earliest: Ends, time: str) -> None:
        """Warn of partitions whose messages before the start of the flow were deleted.

        A warning, for the broker does not tell the times of deleted messages.

        Args:
            starts: offsets of the first messages at or after a time.
            earliest: offsets of the first messages that the broker still has.
            time: the time, for the warning.
        """
        cut = [partition for partition, first in earliest.items() if starts[partition] <= first > 0]
        if cut:
            more = f" and {len(cut) - 1} more" if len(cut) > 1 else ""
            logger.warning(
                "messages before %s of %s%s were deleted on the broker, and may include messages "
                "since start=%s; going on with what is left",
                f"{earliest[cut[0]]:,}",
                cut[0],
                more,
                time,
            )

    def _shrunk(self, offsets: Ends, latest: Ends) -> list[TopicPartition]:
        """Return the partitions that end before the flow's offset, beyond doubt."""
        shrunk: list[TopicPartition] = []
        for partition, offset in offsets.items():
            end = latest.get(partition)
            if end is not None and end >= offset:
                self._doubted.pop(partition, None)
                self.lost.discard(partition)
                continue
            if not self._is_certain(partition):
                continue
            self.lost.add(partition)
            if end is None:
                self._report(f"{partition} is not on the broker any more")
            else:
                self._report(
                    f"{partition} ends at {end:,}, and the flow has read up to {offset:,}: the "
                    "topic was created again, or its last messages were lost"
                )
                shrunk.append(partition)
        return shrunk

    def _is_certain(self, partition: TopicPartition) -> bool:
        since = self._doubted.setdefault(partition, self._clock())
        return self._clock() - since >= DOUBT_SECONDS

    def _report(self, loss: str) -> None:
        if self._on_data_loss == "fail":
            raise SourceError(f"{loss} ({_REMEDY})")
        if loss not in self._warned:
            self._warned.add(loss)
            logger.warning("%s; going on with what is left", loss)
