"""Kills of runs at random moments until the shop is done, with counts of their phases."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.support.faults import Child, Phase, Shop, Victims

WEIGHTS = {Victims.DRIVER: 4, Victims.BOTH: 3, Victims.EVERYTHING: 2, Victims.JVM: 1}
STARTING_SHARE = 0.15
"""How many of the kills fall before the run has begun an epoch."""


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        victims: who was killed; ``None`` if the run was only asked to stop, and did.
        phase: what the run was at.
        redone: whether the next run has an epoch to do again.
    """

    victims: Victims | None
    phase: Phase
    redone: bool

    def __str__(self) -> str:
        """Who was killed, and at what."""
        return f"{'nobody' if self.victims is None else self.victims.value}, {self.phase.value}"


class Tool(Enum):
    """A command of ``python -m recovery``."""

    VERIFY = "verify"
    STATUS = "status"
    REWIND = "rewind"
    RESCALE = "rescale"
    RELOCATE = "relocate"


class ToolPhase(Enum):
    """Phase of a tool when it was killed, as the checkpoint's files tell it.

    Attributes:
        STARTING: it held no lock; the tools that only read take none.
        LOCKED: it held the lock, and had changed nothing.
        CHANGED: it had changed files, some of them or all.
    """

    STARTING = "starting or reading"
    LOCKED = "locked"
    CHANGED = "files changed"


@dataclass(frozen=True)
class ToolKill:
    """One kill of a tool: which, whom, and what it was at."""

    tool: Tool
    victims: Victims
    phase: ToolPhase

    def __str__(self) -> str:
        """The killed tool, the processes of it that were killed, and its phase."""
        return f"{self.tool.value}, {self.victims.value}, {self.phase.value}"


@dataclass
class Tally:
    """Counts of kills, of runs and of tools."""

    kills: list[Kill] = field(default_factory=list)
    tool_kills: list[ToolKill] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    finished: int = 0

    @property
    def count(self) -> int:
        """The number of kills so far, of runs and of tools."""
        return len(self.kills) + len(self.tool_kills)

    def lines(self) -> list[str]:
        """A summary to print."""
        phases = Counter(kill.phase.value for kill in self.kills)
        victims = Counter(kill.victims.value for kill in self.kills if kill.victims is not None)
        of_tools = Counter(f"{kill.tool.value}, {kill.phase.value}:" for kill in self.tool_kills)
        return [
            f"kills: {self.count}",
            f"of runs: {len(self.kills)} ({_counted(victims)})",
            f"fell in: {_counted(phases)}",
            f"of tools: {len(self.tool_kills)} ({_counted(of_tools)})",
            f"tools that ended by themselves: {_counted(self.tools)}",
            f"epochs done again: {sum(kill.redone for kill in self.kills)}",
            f"flows that ended by themselves: {self.finished}",
        ]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common())


def strike(child: Child, victims: Victims) -> tuple[bool, Victims]:
    """Kill a process, the driver where it has no JVM yet.

    Returns:
        True if the process had ended before, and who was killed.
    """
    ended = child.ended
    if victims is Victims.JVM and child.jvm() is None:
        victims = Victims.DRIVER
    child.kill(victims)
    child.process.wait(120)
    return ended, victims


@dataclass
class Killer:
    """Kills runs at moments that fall anywhere in a start, and in an epoch.

    How long these take differs from machine to machine, so it is measured as runs go by.
    """

    rng: random.Random
    start_seconds: float = 8.0
    epoch_seconds: float = 1.0
    gentle: bool = False
    """True if runs are only asked to stop, so that kills fall on tools alone."""

    def kill(self, shop: Shop, child: Child) -> Kill | None:
        """Kill a run some time; what was killed, or nothing if it ended before."""
        begun = shop.logged("offsets")
        if self.gentle:
            return self._stop(shop, child)
        victims = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if self.rng.random() < STARTING_SHARE:
            self._wait(child, self.rng.random() * self.start_seconds)
        else:
            self._let_epochs_pass(shop, child)
        ended, victims = strike(child, victims)
        if ended:
            if child.process.returncode:
                code = child.process.returncode
                raise AssertionError(f"a run ended with {code} by itself:\n{child.output}")
            return None
        redone = shop.logged("offsets") > shop.logged("commits")
        return Kill(victims, shop.phase(begun), redone)

    def _stop(self, shop: Shop, child: Child) -> Kill | None:
        self._let_epochs_pass(shop, child)
        if not child.ended:
            child.process.send_signal(signal.SIGINT)
        code = child.process.wait(120)
        if "\ndone after " in child.output:
            return None
        if code and "KeyboardInterrupt" not in child.output:  # which came after its last epoch
            raise AssertionError(f"a run ended with {code} by itself:\n{child.output}")
        return Kill(None, Phase.BETWEEN, False)

    def _let_epochs_pass(self, shop: Shop, child: Child) -> None:
        started, before = time.monotonic(), shop.logged("commits")
        child.wait_for(lambda: child.epochs)
        self.start_seconds = time.monotonic() - started
        wanted = before + self.rng.randint(1, 3)
        started = time.monotonic()
        child.wait_for(lambda: shop.logged("commits") >= wanted)
        passed = shop.logged("commits") - before
        if passed > 1:
            self.epoch_seconds = (time.monotonic() - started) / (passed - 1)
        self._wait(child, self.rng.random() * self.epoch_seconds)

    def _wait(self, child: Child, seconds: float) -> None:
        until = time.monotonic() + seconds
        child.wait_for(lambda: time.monotonic() >= until)


def kill_until_done(
    shop: Shop,
    killer: Killer,
    children: list[Child],
    tally: Tally,
    most: int,
    report: Callable[[Kill], Any] = lambda _: None,
    between: Callable[[], Any] = lambda: None,
) -> None:
    """Run the shop to its end, killing each run until there have been so many kills in all.

    Each run starts at once, while what is left of the one before may still be dying; but for what
    is done between two runs.
    """
    while tally.count < most:
        child = shop.start()
        children.append(child)
        kill = killer.kill(shop, child)
        for one in children[:-1]:
            one.vanish()
        if kill is None:
            break
        if kill.victims is not None:
            tally.kills.append(kill)
            report(kill)
        between()
    else:
        children.append(shop.start())
    children[-1].finish()
