"""What Spark's checkpoint says of an epoch: where it begins, and that it is done.

Spark counts the epochs of each generation of a checkpoint from 0; those are *batches* here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from flow.engine.feed.feed import EpochOffset
from flow.instants import NEVER, Moment

Json: TypeAlias = Any

_CODEC = "spark.sql.streaming.stateStore.compression.codec"


@dataclass(frozen=True)
class EpochLog:
    """What was logged before an epoch ran.

    Attributes:
        offset: where it ends, as the flow's feed decided it.
        sparks: the offsets of sources that Spark itself reads.
        codec: how the files of its state are compressed.
    """

    offset: EpochOffset
    sparks: tuple[Json, ...]
    codec: str

    @property
    def moment(self) -> Moment:
        """The epoch's system time, and up to when all inputs had been read."""
        control = self.offset.control
        if control is None:
            return Moment(0)
        read_us = min((clock.after_us for clock in control.read.values()), default=NEVER)
        late = read_us < control.moment.running_us
        return replace(control.moment, read_us=read_us) if late else control.moment

    @classmethod
    def parse(cls, text: str) -> EpochLog:
        """Read a file of Spark's ``offsets``.

        Raises:
            ValueError: when it is none, or is not whole.
        """
        _, metadata, *sources = _lines(text)
        conf = json.loads(metadata)["conf"]
        offsets = [_offset(line) for line in sources]
        if not offsets or not isinstance(offsets[0], dict):
            raise ValueError("it holds no offset of the flow's own")
        try:
            own = EpochOffset.from_json(offsets[0])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the flow's own offset cannot be read: {error}") from error
        return cls(own, tuple(offsets[1:]), str(conf.get(_CODEC, "lz4")))


@dataclass(frozen=True)
class CommitLog:
    """What was logged once an epoch was done.

    Attributes:
        state: for each level's operator, by Spark's number, the id of each partition's state.
    """

    state: Mapping[int, tuple[str, ...]]

    @classmethod
    def parse(cls, text: str) -> CommitLog:
        """Read a file of Spark's ``commits``.

        Raises:
            ValueError: when it is none, or is not whole.
        """
        _, content, *_ = _lines(text)
        ids = json.loads(content).get("stateUniqueIds") or {}
        state = {
            int(operator): tuple(stores[0] for stores in partitions)
            for operator, partitions in ids.items()
        }
        return cls(state)


def _lines(text: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise ValueError("it is not whole")
    return lines


def _offset(line: str) -> Json:
    """A source's offset, which may have the source's name before it."""
    name, _, rest = line.partition(":")
    named = bool(rest) and name.replace("_", "").replace("-", "").isalnum()
    text = rest if named else line
    return None if text == "-" else json.loads(text)
