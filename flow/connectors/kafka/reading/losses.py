"""Messages that were to be read and are gone: noticed, and met as asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from flow.connectors.kafka.cluster import Ends, TopicPartition
from flow.errors import SourceError

OnDataLoss: TypeAlias = Literal["fail", "warn"]
"""What to do when messages that were to be read are gone: stop, or go on with what is left."""

DOUBT_SECONDS = 5.0
"""How long a partition may be missing, or shorter than it was, before that is taken for true: a
broker that has just started may not know better."""

_HOW = (
    "on_data_loss='warn' goes on with what is left; to start elsewhere, reset the step with "
    "RecoveryConfig(reset_steps=[...])"
)

logger = logging.getLogger("flow")


class LossWatch:
    """Compares where a flow is with what the brokers have.

    Args:
        on_data_loss: what to do about a loss.
        clock: seconds that never go back.

    Attributes:
        lost: partitions that are missing, or shorter than they were, beyond doubt.
    """

    def __init__(
        self, on_data_loss: OnDataLoss, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_data_loss = on_data_loss
        self._clock = clock
        self._doubted: dict[TopicPartition, float] = {}
        self._said: set[str] = set()
        self.lost: set[TopicPartition] = set()

    @property
    def in_doubt(self) -> bool:
        """Whether a partition seems to be missing, or too short, and that is not certain."""
        return bool(self.doubted)

    @property
    def doubted(self) -> set[TopicPartition]:
        """Partitions that seem to be missing, or too short, without certainty."""
        return {one for one in self._doubted if not self._certain(one)}

    def mended(
        self,
        at: Ends,
        latest: Ends,
        to_read: Mapping[TopicPartition, int],
        earliest: Callable[[list[TopicPartition]], Ends],
    ) -> Ends:
        """The offsets to go on from, where they differ from those where the flow is.

        Args:
            at: where the flow is.
            latest: where partitions end; those that are not there are missing.
            to_read: how many messages are to be read of partitions now.
            earliest: asks where partitions begin.

        Raises:
            SourceError: when messages are gone, and that is to be an error.
        """
        shrunk = self._shrunk(at, latest)
        begins = earliest([*to_read, *(one for one in shrunk if one not in to_read)])
        moved: Ends = {}
        for one, first in begins.items():
            if one in shrunk:
                moved[one] = first
            elif first > at[one]:
                self._meet(
                    f"messages {at[one]:,} to {first - 1:,} of {one} were deleted on the broker "
                    "before the flow read them"
                )
                moved[one] = first
        return moved

    def _shrunk(self, at: Ends, latest: Ends) -> list[TopicPartition]:
        """Partitions that end before the place where the flow is, beyond doubt."""
        shrunk: list[TopicPartition] = []
        for one, offset in at.items():
            end = latest.get(one)
            if end is not None and end >= offset:
                self._doubted.pop(one, None)
                self.lost.discard(one)
                continue
            if not self._certain(one):
                continue
            self.lost.add(one)
            if end is None:
                self._meet(f"{one} is not on the broker any more")
            else:
                self._meet(
                    f"{one} ends at {end:,}, and the flow has come to {offset:,}: the topic was "
                    "made anew, or its last messages were lost"
                )
                shrunk.append(one)
        return shrunk

    def _certain(self, one: TopicPartition) -> bool:
        since = self._doubted.setdefault(one, self._clock())
        return self._clock() - since >= DOUBT_SECONDS

    def _meet(self, loss: str) -> None:
        if self._on_data_loss == "fail":
            raise SourceError(f"{loss} ({_HOW})")
        if loss not in self._said:
            self._said.add(loss)
            logger.warning("%s; going on with what is left", loss)
