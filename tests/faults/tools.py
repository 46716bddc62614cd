"""Use of the recovery tools between two runs of the shop, with kills and second calls."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.killing import WEIGHTS, Tally, Tool, ToolKill, ToolPhase, strike
from tests.support.faults import Child, Shop

SHARE = 0.5
"""Chance that a tool is used between two runs, or after another tool."""
KILLED = 0.7
"""Share of the tools in use that are killed."""
READERS = (Tool.VERIFY, Tool.STATUS)
OFTEN = {Tool.VERIFY: 1, Tool.STATUS: 1, Tool.REWIND: 4, Tool.RESCALE: 3, Tool.RELOCATE: 3}
PLACES = ("checkpoint", "moved")


@dataclass
class ToolUser:
    """Uses tools on the shop's checkpoint, and kills some of them.

    How long a tool takes until it holds the lock, and from then on, is measured as tools go by.

    Attributes:
        rng: what chooses.
        shop: the shop.
        children: where the processes that are started go.
        tally: where kills are counted.
        most: how many kills are enough.
        report: told of each kill.
    """

    rng: random.Random
    shop: Shop
    children: list[Child]
    tally: Tally
    most: int
    report: Callable[[ToolKill], Any] = lambda _: None
    start_seconds: float = 8.0
    work_seconds: dict[Tool, float] = field(default_factory=dict)

    def use(self) -> None:
        """Use some tools, or none, one after the other, each until it is done."""
        while self.rng.random() < SHARE and self.shop.identity:
            tools = list(OFTEN) if self.shop.epochs("commits") else [*READERS, Tool.RELOCATE]
            (tool,) = self.rng.choices(tools, [OFTEN[tool] for tool in tools])
            self._use(tool)
            self.tally.tools[tool.value] += 1

    def _use(self, tool: Tool) -> None:
        if tool is Tool.RELOCATE:
            self._move()
        arguments = self._arguments(tool)
        generation = self.shop.identity["generation"]
        while self.tally.count < self.most and self.rng.random() < KILLED:
            kill = self._killed(tool, arguments)
            if kill is None:
                return
            self.tally.tool_kills.append(kill)
            self.report(kill)
            # One that is done is not done again: there is no epoch of the new layout yet.
            if tool is Tool.RESCALE and self.shop.identity["generation"] > generation:
                return
        child = self._start(tool, arguments)
        child.process.wait(280)
        _check(tool, child)

    def _move(self) -> None:
        """Move the checkpoint to the other place, once nobody uses it any more."""
        for child in self.children:
            child.vanish()
        before = self.shop.checkpoint
        self.shop.place = PLACES[1 - PLACES.index(self.shop.place)]
        before.rename(self.shop.checkpoint)

    def _arguments(self, tool: Tool) -> list[str]:
        match tool:
            case Tool.REWIND:
                done = self.shop.epochs("commits")
                epoch = max(done[0], done[-1] - self.rng.randint(1, 4))
                return ["--epoch", str(epoch), "--yes"]
            case Tool.RESCALE:
                shards, partitions = self.rng.choice((3, 5, 8, 13)), self.rng.choice((1, 2, 3))
                return ["--shards", str(shards), "--partitions", str(partitions)]
            case Tool.RELOCATE:
                return ["--yes"]
            case Tool.VERIFY | Tool.STATUS:
                return []

    def _start(self, tool: Tool, arguments: list[str]) -> Child:
        command = [sys.executable, "-m", "recovery", tool.value, str(self.shop.checkpoint)]
        child = Child.start([*command, *arguments], self.shop.home)
        self.children.append(child)
        return child

    def _killed(self, tool: Tool, arguments: list[str]) -> ToolKill | None:
        """Start a tool and kill it; nothing if it ended before."""
        before = _top(self.shop.checkpoint)
        child = self._start(tool, arguments)
        victims = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self._wait_for_the_moment(tool, child, before)
        ended, victims = strike(child, victims)
        if ended:
            _check(tool, child)
            return None
        return ToolKill(tool, victims, self._phase(child, before))

    def _wait_for_the_moment(self, tool: Tool, child: Child, before: dict[str, int]) -> None:
        """Wait some time from its start, from its lock, or from the first file that it changes."""
        since = self.rng.choice(("start", "lock", "lock", "change", "change"))
        if since == "start" or tool in READERS:
            self._wait(child, 1.5 * self.start_seconds)
            return
        started = time.monotonic()
        if not child.wait_for(lambda: self._is_locked_by(child)):
            return
        self.start_seconds = locked = time.monotonic() - started
        work = self.work_seconds.get(tool, 2.0)
        if since == "lock":
            self._wait(child, work)
        elif child.wait_for(lambda: _top(self.shop.checkpoint) != before):
            self.work_seconds[tool] = time.monotonic() - started - locked
            self._wait(child, 0.3)

    def _wait(self, child: Child, most: float) -> None:
        until = time.monotonic() + self.rng.random() * most
        child.wait_for(lambda: time.monotonic() >= until)

    def _phase(self, child: Child, before: dict[str, int]) -> ToolPhase:
        if _top(self.shop.checkpoint) != before:
            return ToolPhase.CHANGED
        return ToolPhase.LOCKED if self._is_locked_by(child) else ToolPhase.STARTING

    def _is_locked_by(self, child: Child) -> bool:
        try:
            claims = [one.read_text() for one in self.shop.checkpoint.glob("lock.*.json")]
        except OSError:
            return False
        return any(json.loads(claim).get("pid") == child.process.pid for claim in claims)


def _check(tool: Tool, child: Child) -> None:
    code = child.process.returncode
    if code:
        raise AssertionError(f"{tool.value} ended with {code}:\n{child.output}")


def _top(checkpoint: Path) -> dict[str, int]:
    """Return the entries at the top of a checkpoint, except locks, with their time of change.

    Each tool that changes anything first makes something there, and no run does later than its
    first epoch: the JVM of one that was killed may still be at work below.
    """
    found = {}
    for entry in os.scandir(checkpoint):
        if not entry.name.lstrip(".").startswith("lock"):
            with contextlib.suppress(FileNotFoundError):
                found[entry.name] = entry.stat().st_mtime_ns
    return found
