"""Random chains of steps in event time, and runs of them: live with outages, and as a backlog.

Values of some keys arrive in source partitions, with delays of at most `WAIT`. Steps of the first
level read them with that wait; steps of later levels read results of one or two steps, with plain
values or without, and wait for little or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.testing import Part, TestDriver, TestingSink, TestingSource
from tests.support.random_flows import Choice, pick

WAIT = 10.0
UNTIL = 300.0
"""The time at which the last value arrives, in seconds."""

Keyed = Stream[tuple[str, dict[str, Any]]]
"""A stream whose values have their time in ``at``, and a number in ``n``."""


@dataclass
class SeededChoice:
    """A `Choice` by a seeded generator."""

    random: Random

    def integer(self, least: int, most: int) -> int:
        return self.random.randint(least, most)


@dataclass(frozen=True)
class Made:
    """A stream of a chain.

    Attributes:
        stream: the stream.
        is_certain: True if its items depend on the values alone, not on the order of arrival.
        has_results: True if it carries results of steps in event time.
        is_many: True if it may carry many items of a key at one time; no join reads it, as the
            number of pairs would grow without bound.
    """

    stream: Keyed
    is_certain: bool = True
    has_results: bool = False
    is_many: bool = False


@dataclass
class Chain:
    """A chain as it is built.

    Attributes:
        choose: the origin of decisions.
        endless: True for clocks that wait until the input ends, so that no value is late.
        flow: the flow; step ``X`` has the outputs ``X.out`` and ``X.late``.
        certain: the steps, each with True if its results depend on the values alone.
    """

    choose: Choice
    endless: bool
    flow: Dataflow = field(default_factory=lambda: Dataflow("chain"))
    certain: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def build(cls, choose: Choice, inputs: int, endless: bool = False) -> Chain:
        """Return a random chain of three levels over some inputs."""
        chain = cls(choose, endless)
        plain = []
        for number in range(inputs):
            values = op.input(f"in{number}", chain.flow, TestingSource([]))
            plain.append(Made(op.key_on(f"by_key{number}", values, "key")))
            op.output(f"in{number}.out", plain[-1].stream, TestingSink([]))
        made = [
            chain.add(f"A{number}", [pick(choose, plain) for _ in range(choose.integer(1, 2))])
            for number in range(choose.integer(1, 2))
        ]
        for level in "BC":
            for number in range(choose.integer(1, 2)):
                ups = [pick(choose, made) for _ in range(choose.integer(1, 2))]
                if choose.integer(0, 2) == 0:
                    ups.append(pick(choose, plain))
                made.append(chain.add(f"{level}{number}", ups))
        return chain

    def add(self, name: str, ups: list[Made]) -> Made:
        """Add a step that reads streams, and return the stream of its results."""
        choose, has_results = self.choose, any(up.has_results for up in ups)
        wait = pick(choose, [0, 0, 3]) if has_results else WAIT
        clock: Any = win.EventClock(
            "at",
            timedelta.max if self.endless else timedelta(seconds=wait),
            scope=pick(choose, ["key", "key", "stream"]),
        )
        is_many = any(up.is_many for up in ups)
        kind = pick(choose, [one for one in KINDS if not (is_many and one in PAIRING)])
        out, is_certain = kind(self, name, clock, [up.stream for up in ups])
        stream = op.map(f"{name}.value", op.filter(f"{name}.kept", out[0], _is_kept), _as_value)
        if kind is not _map and choose.integer(0, 4) == 0:
            # A step of system time that gives items on at once passes the holds on.
            stream = op.stateful_map(f"{name}.passed", stream, lambda _, value: (None, value))
        op.output(f"{name}.out", stream, TestingSink([]))
        op.output(f"{name}.late", out[1], TestingSink([]))
        self.certain[name] = is_certain and all(up.is_certain for up in ups)
        is_many = kind in GROWING or (is_many and kind in (_dedup, _map))
        return Made(stream, self.certain[name], has_results or kind is not _dedup, is_many)

    def windower(self) -> win.Windower[Any]:
        """Return a random windower whose windows the watermark closes."""
        choose = self.choose
        grace = pick(choose, [None, None, None, "0s", "3s", "12s"])
        make: Callable[[], win.Windower[Any]] = pick(
            choose,
            [
                lambda: win.TumblingWindower("7s", grace=grace),
                lambda: win.TumblingWindower("50s", closed="right", grace=grace),
                lambda: win.SlidingWindower("20s", "5s", grace=grace),
                lambda: win.SlidingWindower("10s", "15s", grace=grace),
                lambda: win.SessionWindower("4s", inclusive=False, grace=grace),
                lambda: win.SessionWindower("15s", grace=grace),
                lambda: win.EventSlidingWindower("5s", grace=grace),
                lambda: win.EventSlidingWindower("12s", emit_right=True, grace=grace),
                lambda: win.CalendarWindower("day", "Europe/Berlin", grace=grace),
            ],
        )
        return make()

    def timestamp(self) -> Any:
        """Return a random timestamp of results."""
        return pick(self.choose, [None, "open", "close", "last"])


class _SumLogic(win.WindowLogic[dict[str, Any], int, int]):
    """A user's logic, which declares nothing."""

    def __init__(self, total: int | None) -> None:
        self._total = total or 0

    def on_value(self, value: dict[str, Any]) -> tuple[()]:
        self._total += value["n"]
        return ()

    def on_merge(self, original: Any) -> tuple[()]:
        self._total += original.snapshot()
        return ()

    def on_close(self) -> tuple[int]:
        return (self._total,)

    def snapshot(self) -> int:
        return self._total


Out = tuple[Any, bool]
"""The streams of a step, the results first and the late values second, and `Made.is_certain`."""


def _merged(name: str, ups: list[Keyed]) -> Keyed:
    return ups[0] if len(ups) == 1 else op.merge(f"{name}.merged", *ups)


def _sums(chain: Chain, name: str, clock: Any, ups: list[Keyed], emit: Any, certain: bool) -> Out:
    up, stamp = _merged(name, ups), chain.timestamp()
    out = win.aggregate_window(
        name, up, clock, chain.windower(), timestamp=stamp, emit=emit, n=win.Sum("n")
    )
    return out, certain


def _closed(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    return _sums(chain, name, clock, ups, "close", certain=True)


def _updates(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    emit = pick(chain.choose, ["update", "epoch", win.Early(count=2), win.Early(every="7s")])
    return _sums(chain, name, clock, ups, emit, certain=False)


def _ordered(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    fold = (lambda: 0, lambda total, value: total + value["n"], lambda a, b: a + b)
    up, stamp = _merged(name, ups), chain.timestamp()
    out = win.fold_window(name, up, clock, chain.windower(), *fold, ordered=True, timestamp=stamp)
    return out, True


def _logic(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    ordered = chain.choose.integer(0, 1) == 1
    up = _merged(name, ups)
    return win.window(name, up, clock, chain.windower(), _SumLogic, ordered=ordered), True


def _counted(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    up, stamp = _merged(name, ups), pick(chain.choose, ["close", "last"])
    threes = win.CountWindower(3)
    return win.aggregate_window(name, up, clock, threes, timestamp=stamp, n=win.Sum("n")), False


def _interval(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    how, grace = pick(chain.choose, ["inner", "left", "right", "outer"]), pick(chain.choose, GRACES)
    out = win.join_interval(name, ups[0], ups[-1], clock, "5s", "3s", how=how, grace=grace)
    return ((out.closed, out.late) if chain.choose.integer(0, 2) == 0 else out), True


def _asof(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    direction, emit = pick(chain.choose, [("backward", "now"), *DIRECTIONS])
    options = {"tolerance": "10s", "direction": direction, "emit": emit}
    # Of right values with equal timestamps the first to arrive is the partner.
    return win.join_asof(name, ups[0], ups[-1], clock, **options), False


def _joined(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    windower = chain.windower()
    options: dict[str, Any] = {
        "insert_mode": "last" if isinstance(windower, win.CalendarWindower) else "product",
        "emit_mode": pick(chain.choose, ["final", "complete", "running"]),
        "timestamp": chain.timestamp(),
    }
    return win.join_window(name, ups[0], ups[-1], clock=clock, windower=windower, **options), False


def _dedup(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    return win.dedup(name, _merged(name, ups), clock, lambda value: str(value), ttl="1us"), False


def _map(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    def count(state: int | None, value: Any) -> tuple[int, Any]:
        return (state or 0) + 1, {"at": value["at"], "n": state or 0}

    ttl = pick(chain.choose, ["5s", "30s"])
    return win.stateful_map(name, _merged(name, ups), clock, count, ttl=ttl), True


def _all_keys(chain: Chain, name: str, clock: Any, ups: list[Keyed]) -> Out:
    up, stamp, length = _merged(name, ups), pick(chain.choose, [None, "close"]), "20s"
    windower = win.TumblingWindower(length)
    if chain.choose.integer(0, 1):
        return win.top_n(name, up, clock, windower, 2, win.Sum("n"), stamp), True
    out = win.aggregate_window_all(name, up, clock, windower, timestamp=stamp, n=win.Sum("n"))
    return out, True


GRACES = (None, None, "4s")
DIRECTIONS = tuple((one, "close") for one in ("backward", "forward", "nearest"))
KINDS = (
    *(_closed, _closed, _closed, _updates, _ordered, _logic, _counted),
    *(_interval, _interval, _asof, _joined, _dedup, _map, _all_keys),
)
PAIRING = (_interval, _asof, _joined)
GROWING = (_updates, *PAIRING)


def _is_kept(item: Any) -> bool:
    value = item[1]
    return not (isinstance(value, tuple) and isinstance(value[-1], win.Retracted))


def _as_value(item: Any) -> tuple[str, dict[str, Any]]:
    """Return a result as a value of half as many keys, with the time of the result."""
    key, value = item
    key = f"k{int(key[1:]) // 2}" if key[1:].isdigit() else key
    if isinstance(value, dict):
        return key, value
    window, result = value if type(value) is tuple else (value, 1)
    time = window.timestamp or window.open_time
    return key, {"at": time.timestamp(), "n": _number(result)}


def _number(result: Any) -> int:
    """Return a number that stands for a result: the sum of the numbers in it."""
    match result:
        case int() | float():
            return int(result)
        case {"n": number}:
            return int(number)
        case (str(), number):
            return int(number)
        case list() | tuple():
            return sum(map(_number, result))
    return 0


def arrivals(random: Random, partitions: int) -> list[list[tuple[float, dict[str, Any]]]]:
    """Return values with the times of their arrival, of source partitions of unequal density."""
    made = []
    for _ in range(partitions):
        rate, at, part = 10 ** random.uniform(-2, 0), 0.0, list[tuple[float, dict[str, Any]]]()
        keys = [random.randrange(8) for _ in range(6)]
        while (at := at + random.expovariate(rate)) < UNTIL:
            time = at - random.uniform(0, WAIT) * (random.random() < 0.4)
            value = {"key": f"k{random.choice(keys)}", "at": round(time, 3)}
            part.append((at, {**value, "n": random.randrange(1, 5), "id": len(part)}))
        made.append(part)
    return made


@dataclass(frozen=True)
class Played:
    """The results of a run.

    Attributes:
        results: the number of each result of each step, as text.
        late: the late values of each step that had them, but for values in gaps.
        certain: as in `Chain`.
    """

    results: dict[str, Counter[str]]
    late: dict[str, list[Any]]
    certain: dict[str, bool]


def play(seed: int, *, live: bool, shards: int = 3) -> Played:
    """Run a chain epoch by epoch, of random lengths, with limits, outages and restarts.

    Live, system time passes and values arrive; otherwise all values have arrived at the start.
    """
    random = Random(seed + 1_000_003)
    inputs = {
        f"in{number}": arrivals(random, random.choice([1, 2])) for number in range(seed % 2 + 1)
    }
    limit, now, quiet = random.choice([3, 50, 10_000]), 0.0 if live else 1000.0, 8
    place = {(name, number): 0 for name, parts in inputs.items() for number in range(len(parts))}

    def run(driver: TestDriver) -> None:
        nonlocal now, quiet
        while quiet:
            passed = 0.0
            rest = sum(len(inputs[name][number]) - at for (name, number), at in place.items())
            if live:
                outage = 90.0 * ((random.random() < 0.03) + (quiet < 8))
                passed, quiet = random.choice([0.2, 2.0, 20.0]) + outage, quiet - (not rest)
            elif not rest:
                return
            now += passed
            sent: dict[str, list[Part]] = {name: [] for name in inputs}
            behind = list[tuple[str, int]]()
            for (name, number), start in place.items():
                part = inputs[name][number]
                arrived = sum(at <= now for at, _ in part)
                end = place[name, number] = min(arrived, start + limit)
                if end < (arrived if live else len(part)):
                    behind.append((name, number))
                sent[name].append(Part([value for _, value in part[start:end]], number))
            if random.random() < 0.05:
                driver.restart()
            driver.send_parts(sent, after=timedelta(seconds=passed), behind=behind)

    return _play(Chain.build(SeededChoice(Random(seed)), len(inputs)), shards, now, run)


def play_at_once(seed: int) -> Played:
    """Run a chain on all values at once, with clocks that wait until the input ends."""
    random = Random(seed + 1_000_003)
    inputs = {
        f"in{number}": arrivals(random, random.choice([1, 2])) for number in range(seed % 2 + 1)
    }

    def run(driver: TestDriver) -> None:
        driver.send_parts(
            {
                name: [Part([value for _, value in part], at) for at, part in enumerate(parts)]
                for name, parts in inputs.items()
            }
        )

    chain = Chain.build(SeededChoice(Random(seed)), len(inputs), endless=True)
    return _play(chain, 2, 1000.0, run)


def _play(chain: Chain, shards: int, now: float, run: Callable[[TestDriver], None]) -> Played:
    with TestDriver(chain.flow, now=now, shards=shards) as driver:
        run(driver)
        driver.end()
        results = {
            name: Counter(map(repr, driver.received(f"{name}.out"))) for name in chain.certain
        }
        late = {
            name: [
                late for _, late in driver.received(f"{name}.late") if late.reason.value != "gap"
            ]
            for name in chain.certain
        }
    return Played(
        results, {name: of_step for name, of_step in late.items() if of_step}, chain.certain
    )
