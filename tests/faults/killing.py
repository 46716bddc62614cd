"""Killing runs at random moments until the shop is done, and noting where the kills fell."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.faults import Child, Phase, Shop, Victims

WEIGHTS = {Victims.DRIVER: 4, Victims.BOTH: 3, Victims.EVERYTHING: 2, Victims.JVM: 1}
STARTING_SHARE = 0.15
"""How many of the kills fall before the run has begun an epoch."""


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        victims: who was killed.
        phase: what the run was at.
        redone: whether the next run has an epoch to do again.
    """

    victims: Victims
    phase: Phase
    redone: bool


@dataclass
class Tally:
    """What was seen of many kills."""

    kills: list[Kill] = field(default_factory=list)
    finished: int = 0

    def lines(self) -> list[str]:
        """A summary to print."""
        phases = Counter(kill.phase.value for kill in self.kills)
        victims = Counter(kill.victims.value for kill in self.kills)
        return [
            f"kills: {len(self.kills)} ({_counted(victims)})",
            f"fell in: {_counted(phases)}",
            f"epochs done again: {sum(kill.redone for kill in self.kills)}",
            f"flows that came to their end: {self.finished}",
        ]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common())


@dataclass
class Killer:
    """Kills runs at moments that fall anywhere in a start, and in an epoch.

    How long these take differs from machine to machine, so it is measured as runs go by.
    """

    rng: random.Random
    start_seconds: float = 8.0
    epoch_seconds: float = 1.0

    def kill(self, shop: Shop, child: Child) -> Kill | None:
        """Kill a run some time; what was killed, or nothing if it came to its end before."""
        begun = shop.logged("offsets")
        victims = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if self.rng.random() < STARTING_SHARE:
            self._wait(child, self.rng.random() * self.start_seconds)
        else:
            self._let_epochs_pass(shop, child)
        ended = child.ended
        if victims is Victims.JVM and child.jvm() is None:
            victims = Victims.DRIVER
        child.kill(victims)
        child.process.wait(120)
        if ended:
            if child.process.returncode:
                raise AssertionError(f"a run failed by itself:\n{child.output}")
            return None
        redone = shop.logged("offsets") > shop.logged("commits")
        return Kill(victims, shop.phase(begun), redone)

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
) -> None:
    """Run the shop to its end, killing each run until there have been so many kills in all.

    Each run starts at once, while what is left of the one before may still be dying.
    """
    while len(tally.kills) < most:
        child = shop.start()
        children.append(child)
        kill = killer.kill(shop, child)
        for one in children[:-1]:
            one.vanish()
        if kill is None:
            break
        tally.kills.append(kill)
        report(kill)
    else:
        children.append(shop.start())
    children[-1].finish()
    tally.finished += 1
