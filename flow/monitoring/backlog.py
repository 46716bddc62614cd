"""The backlog of inputs with its trend, and the course of a run over the last 15 minutes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from flow.engine.epoch.summary import EpochReport, WatermarkLag
from flow.engine.plan.plan import Plan
from flow.reports.progress import RateWindow

TREND_SECONDS = 60.0
"""The period over which the trend of a backlog is measured."""


@dataclass(frozen=True)
class Backlog:
    """The data of an input that has arrived and is not read yet.

    Attributes:
        items: the number of items; ``None`` for a source that does not know it.
        seconds: the distance in time from the newest data, in seconds; 0 for an input that has read
            all of it.
        growth: the change of `items` in a second, or of `seconds` where the number is not known;
            ``None`` before the second epoch.
    """

    items: int | None
    seconds: float
    growth: float | None = None

    @property
    def is_behind(self) -> bool:
        """True if the source has data that is not read yet."""
        return self.seconds > 0 or bool(self.items)

    @property
    def size(self) -> float:
        """The number of items, or the seconds where the number is not known."""
        return self.seconds if self.items is None else self.items

    @property
    def caught_up_in(self) -> float | None:
        """The seconds until all is read, if the backlog shrinks as it did; ``None`` otherwise."""
        if self.growth is None or self.growth >= 0 or not self.is_behind:
            return None
        return -self.size / self.growth


class Backlogs:
    """The backlogs of a run's inputs, measured after each epoch.

    The distance in time is the age of the newest moment at which the input had read all data that
    had arrived, or the lag of the watermarks of a step that the input feeds, if that is more: a run
    that starts with old data is as far behind as the data is old.

    Args:
        plan: the compiled flow.
    """

    def __init__(self, plan: Plan) -> None:
        self._feeds = plan.feeds
        self._samples = RateWindow[dict[str, float]](TREND_SECONDS)

    def after(
        self, report: EpochReport, lags: Mapping[str, WatermarkLag], now: float
    ) -> dict[str, Backlog]:
        """Return the backlog of each input that knows it, or is behind.

        Args:
            report: the report of an epoch.
            lags: the newest lag of each step.
            now: the machine's clock, in seconds since 1970.
        """
        items = {name: sum(counts.values()) for name, counts in report.behind.items()}
        found = {
            name: Backlog(items.get(name), self._seconds(name, report, lags))
            if items.get(name, 1)
            else Backlog(0, 0.0)
            for name in {**items, **report.behind_by}
        }
        since, before = self._samples.add(now, {name: one.size for name, one in found.items()})
        for name, one in found.items() if now > since else ():
            growth = (one.size - before.get(name, 0.0)) / (now - since)
            found[name] = replace(one, growth=growth)
        return found

    def _seconds(self, name: str, report: EpochReport, lags: Mapping[str, WatermarkLag]) -> float:
        fed = [one for one, inputs in self._feeds.items() if name in inputs and one in lags]
        return max([report.behind_by.get(name, 0.0), *(lags[one].median for one in fed)])


PERIOD_SECONDS = 5.0
"""The period of a point."""

MAX_POINTS = 180
"""The most points that a run retains: those of 15 minutes."""


class Point(NamedTuple):
    """The figures of a run in a period of `PERIOD_SECONDS`, after the last epoch in it.

    Attributes:
        at: the start of the period, in seconds since 1970.
        rate: the items that inputs have read in a second.
        lag: the greatest lag of watermarks, in seconds; ``None`` without watermarks.
        items: the number of items not read yet; ``None`` if no input knows it.
        seconds: the time by which the input that is furthest behind is behind, in seconds.
        state: the size of the state, in bytes.
        epoch: the duration of the period's longest epoch without its waiting, in seconds.
    """

    at: float
    rate: float
    lag: float | None
    items: int | None
    seconds: float
    state: int
    epoch: float


def with_point(points: tuple[Point, ...], point: Point) -> tuple[Point, ...]:
    """Return the points of the last 15 minutes with a newer point, merged with its period's."""
    start = point.at - point.at % PERIOD_SECONDS
    if points and points[-1].at == start:
        point = point._replace(epoch=max(point.epoch, points[-1].epoch))
        points = points[:-1]
    return (*points[-(MAX_POINTS - 1) :], point._replace(at=start))
