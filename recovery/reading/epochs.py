"""Spark's logs of epochs: offsets before an epoch, commits after it.

Spark counts the epochs of each generation of a checkpoint from 0; these numbers are *batches* here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from flow.engine.feed.offsets import EpochOffset
from flow.instants import NEVER, Moment

Json: TypeAlias = Any

_CODEC = "spark.sql.streaming.stateStore.compression.codec"


@dataclass(frozen=True)
class EpochLog:
    """The log of an epoch's offsets, which Spark writes before the epoch runs.

    Attributes:
        offset: the offset at the epoch's end, which the flow's feed planned.
        sparks: the offsets of sources that Spark itself reads.
        codec: the compression codec of the state's files.
    """

    offset: EpochOffset
    sparks: tuple[Json, ...]
    codec: str

    @property
    def moment(self) -> Moment:
        """The epoch's system time, and the time up to which all inputs were read."""
        control = self.offset.control
        if control is None:
            return Moment(0)
        read_us = min((clock.after_us for clock in control.read.values()), default=NEVER)
        has_backlog = read_us < control.moment.running_us
        return replace(control.moment, read_us=read_us) if has_backlog else control.moment

    @classmethod
    def parse(cls, text: str) -> EpochLog:
        """Read a file of Spark's ``offsets``.

        Raises:
            ValueError: if the text is no such log, or is not whole.
        """
        _, metadata, *sources = _log_lines(text)
        conf = json.loads(metadata)["conf"]
        offsets = [_offset(line) for line in sources]
        if not offsets or not isinstance(offsets[0], dict):
            raise ValueError("no offset of the flow in the log")
        try:
            own = EpochOffset.from_json(offsets[0])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the flow's own offset cannot be read: {error}") from error
        return cls(own, tuple(offsets[1:]), str(conf.get(_CODEC, "lz4")))


@dataclass(frozen=True)
class CommitLog:
    """The log of a finished epoch.

    Attributes:
        state: the id of each partition's state, by Spark's number of the level's operator.
    """

    state: Mapping[int, tuple[str, ...]]

    @classmethod
    def parse(cls, text: str) -> CommitLog:
        """Read a file of Spark's ``commits``.

        Raises:
            ValueError: if the text is no such log, or is not whole.
        """
        _, content, *_ = _log_lines(text)
        ids = json.loads(content).get("stateUniqueIds") or {}
        state = {
            int(operator): tuple(stores[0] for stores in partitions)
            for operator, partitions in ids.items()
        }
        return cls(state)


def _log_lines(text: str) -> list[str]:
    """Return the lines of a log of Spark, the first of which is the version.

    Raises:
        ValueError: if the version, or the line after it, is missing.
    """
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise ValueError("the log is not whole")
    return lines


def _offset(line: str) -> Json:
    """Parse a line with a source's offset."""
    return None if line == "-" else json.loads(line)
