"""The comparisons and their goals: the rows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from benchmarks.windows.data import FILES, Events, Form, Spread

FIGURES = {
    "tumbling": ("total",),
    "global": ("total", "mean"),
    "sliding": ("total", "mean"),
    "session": ("n",),
    "join": ("left_amount", "right_amount"),
    "asof": ("left_amount", "right_amount"),
    "dedup": ("amount",),
    "levels": ("total",),
}
"""The results of each kind of windows; of the pairs of a join by time; of events that pass."""


@dataclass(frozen=True)
class Scale:
    """The size of the works.

    Attributes:
        rows: the number of events, and of keys in a large state.
        cores: the number of cores that contestants use.
    """

    rows: int = 5_000_000
    cores: int = 2

    @property
    def files_per_epoch(self) -> int:
        """The number of files in an epoch of a streaming engine."""
        return FILES // 5

    @property
    def epoch_rows(self) -> int:
        """The number of events in an epoch of a streaming engine."""
        return self.rows // 5


@dataclass(frozen=True)
class Contestant:
    """A program that runs a work.

    Attributes:
        name: its name in the table.
        module: its module in this package.
        function: its function in the module.
        needs: the package that has to be installed, if any.
        settings: further settings.
        cores: the number of cores that it uses; ``None`` for the number of the scale.
        has_answer: True if it writes results, which have to agree with those of others.
    """

    name: str
    module: str
    function: str
    needs: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cores: int | None = None
    has_answer: bool = True


class Rule(Enum):
    """The kind of a target."""

    TIMES_AS_FAST = "at least {:g}x as fast"
    TIMES_AS_LONG = "at most {:g}x as long"
    AT_MOST = "at most {:g}"


@dataclass(frozen=True)
class Target:
    """The goal of a work."""

    rule: Rule
    limit: float

    def ratio(self, ours: float, theirs: float | None) -> float | None:
        """Return the ratio of this library to the best peer, ``None`` if there is none."""
        if self.rule is Rule.AT_MOST or theirs is None or not ours or not theirs:
            return None
        return theirs / ours if self.rule is Rule.TIMES_AS_FAST else ours / theirs

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """Return True if the goal is reached; ``None`` if there is no peer to compare with."""
        if self.rule is Rule.AT_MOST:
            return ours <= self.limit
        ratio = self.ratio(ours, theirs)
        if ratio is None:
            return None
        return ratio >= self.limit if self.rule is Rule.TIMES_AS_FAST else ratio <= self.limit

    def __str__(self) -> str:
        return self.rule.value.format(self.limit)


@dataclass(frozen=True)
class Work:
    """A comparison.

    Attributes:
        name: its name on the command line.
        title: its title in the table.
        ours: the contestants of this library.
        against: the contestants to compare with; the best of them counts.
        beside: further contestants in the table.
        target: the goal of this library; ``None`` if the work has no goal.
        events: the data set, if the work reads one.
        unit: the unit of results: ``s``, ``ms`` or ``MB``.
        windows: the kind of windows.
        settings: the settings of all contestants.
    """

    name: str
    title: str
    ours: tuple[Contestant, ...]
    against: tuple[Contestant, ...] = ()
    beside: tuple[Contestant, ...] = ()
    target: Target | None = None
    events: Events | None = None
    unit: str = "s"
    windows: str = "tumbling"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contestants(self) -> tuple[Contestant, ...]:
        """All contestants, in the order of the table."""
        return self.ours + self.against + self.beside

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the results on which all contestants must agree."""
        return FIGURES[self.windows]


STREAMING = Contestant("streaming", "ours", "streaming")
SPARK = Contestant("Spark's own", "spark_peer", "streaming")
CARRIED = Contestant("Spark, carrying bytes alone", "carried", "streaming", has_answer=False)
DUCKDB = Contestant("DuckDB", "duckdb_peer", "batch", "duckdb")
POLARS = Contestant("Polars", "polars_peer", "batch", "polars")
OBJECT_ENGINES = (
    Contestant("in process", "ours", "in_process_objects"),
    Contestant("batch", "ours", "batch_objects"),
    Contestant("streaming", "ours", "streaming_objects"),
)
BYTEWAX = (
    Contestant("Bytewax, default", "bytewax_peer", "fold", "bytewax", {"wakes": True}),
    Contestant("Bytewax, no wake-ups", "bytewax_peer", "fold", "bytewax", {"wakes": False}),
)


def all_works(scale: Scale) -> tuple[Work, ...]:
    """Return all comparisons at a scale, in the order of the table."""
    return (
        _against_spark(scale, "tumbling-10k", "tumbling 1 min, sum", 10_000, 10),
        _later_epochs(scale),
        _against_spark(scale, "tumbling-1m", "tumbling 1 min, sum", 1_000_000, 8),
        _against_spark(scale, "tumbling-10", "tumbling 1 min, sum", 10, 2.5),
        _against_spark(scale, "tumbling-zipf", "tumbling 1 min, sum", 1_000_000, 4.5, Spread.ZIPF),
        _against_spark(scale, "sliding", "sliding 1 min by 15 s, sum and mean", 10_000, 16),
        _against_spark(scale, "session", "sessions of gap 30 s, count", 10_000, 12),
        _against_spark(scale, "global", "tumbling 1 min over all keys, sum and mean", 10_000, 3),
        _against_spark(scale, "join", "interval join with itself, up to 1 min later", 10_000, 20),
        _asof(scale),
        _dedup(scale),
        _against_batch(scale, "batch", "batch engine", "batch", 0.5),
        _against_batch(scale, "batch-streaming", "streaming with recovery", "streaming_whole", 0.3),
        _fold(scale, 10, 1),
        _fold(scale, 1_000, 4),
        _fold(scale, 100_000, 20),
        _in_state("few-keys", "an epoch that touches 1,000 keys", (scale.rows, 10_000), 2),
        _in_state("held-values", "an epoch of 1,000 values of a key", (scale.rows, 1_000), 1.5),
        _one_item("one-item", "an epoch with one item, windows", 1, 0.6),
        _one_item("one-item-2", "an epoch with one item, windows of windows", 2, 0.8),
        _two_levels(scale),
        _held_item(),
        _cores(scale),
        _memory(scale),
    )


def _against_spark(
    scale: Scale,
    name: str,
    title: str,
    keys: int,
    times: float | None,
    spread: Spread = Spread.UNIFORM,
) -> Work:
    windows = name.partition("-")[0]
    of = f"{keys:,} keys" + (", Zipf" if spread is Spread.ZIPF else "")
    return Work(
        name,
        f"{title}, {of}",
        (STREAMING,),
        (SPARK,),
        target=None if times is None else Target(Rule.TIMES_AS_FAST, times),
        events=Events(scale.rows, keys, spread),
        windows=windows,
        settings={"windows": windows},
    )


def _later_epochs(scale: Scale) -> Work:
    return Work(
        "tumbling-later",
        "the same from the second epoch on",
        (STREAMING,),
        (SPARK,),
        (CARRIED,),
        Target(Rule.TIMES_AS_FAST, 12),
        events=Events(scale.rows, 10_000),
        settings={"skipped": 1},
    )


def _against_batch(scale: Scale, name: str, engine: str, function: str, times: float) -> Work:
    return Work(
        name,
        f"tumbling 1 min, sum, 10,000 keys, {engine}, all windows closed",
        (Contestant(engine.partition(" ")[0], "ours", function),),
        (DUCKDB,),
        (POLARS,),
        Target(Rule.TIMES_AS_FAST, times),
        Events(scale.rows, 10_000),
    )


def _asof(scale: Scale) -> Work:
    return Work(
        "asof",
        "as-of join of trades with quotes up to 1 min earlier, 10,000 keys, batch engine",
        (Contestant("batch", "ours", "batch"),),
        (Contestant("Polars", "polars_peer", "asof", "polars"),),
        target=Target(Rule.TIMES_AS_FAST, 0.4),
        events=Events(scale.rows, 10_000),
        windows="asof",
        settings={"windows": "asof"},
    )


def _dedup(scale: Scale) -> Work:
    return Work(
        "dedup",
        "dedup, one event of a key in 1 min, 10,000 keys",
        (STREAMING,),
        events=Events(scale.rows, 10_000),
        windows="dedup",
        settings={"windows": "dedup"},
    )


def _fold(scale: Scale, keys: int, times: float) -> Work:
    # Bytewax would take hours for all rows of so many keys.
    rows = scale.rows if keys < 100_000 else scale.rows // 5
    less = "" if rows == scale.rows else f", {rows:,} rows"
    return Work(
        f"fold-{keys}",
        f"fold_window, Python functions over (datetime, float), {keys:,} keys{less}",
        OBJECT_ENGINES,
        BYTEWAX,
        target=Target(Rule.TIMES_AS_FAST, times),
        events=Events(rows, keys, form=Form.OBJECTS),
    )


def _in_state(name: str, title: str, counts: tuple[int, int], times: float) -> Work:
    """Return an epoch with many keys or values in state, and the same with few."""

    def with_state(count: int) -> Contestant:
        label = f"{count:,} {name.partition('-')[2]} in state"
        function = name.replace("-", "_")
        return Contestant(label, "large_state", function, settings={"keys": count})

    many, few = map(with_state, counts)
    target = Target(Rule.TIMES_AS_LONG, times)
    return Work(name, title, (many,), (few,), target=target, unit="ms")


def _one_item(name: str, title: str, levels: int, times: float) -> Work:
    return Work(
        name,
        title,
        (Contestant("streaming", "small_epochs", "one_item"),),
        (Contestant("Spark's own", "spark_peer", "one_item"),),
        (Contestant("Spark, carrying bytes alone", "carried", "one_item"),),
        Target(Rule.TIMES_AS_LONG, times),
        unit="ms",
        settings={"levels": levels},
    )


def _two_levels(scale: Scale) -> Work:
    """Return windows of windows, whose first level holds the second, and the same without."""

    def with_upstream(upstream: str) -> Contestant:
        settings = {"windows": "levels", "upstream": upstream}
        return Contestant(f"streaming, {upstream}", "ours", "streaming_whole", settings=settings)

    return Work(
        "two-levels",
        "tumbling 1 min of 10,000 keys, of these 1 h over all keys, sums, all windows closed",
        (with_upstream("hold"),),
        (with_upstream("ignore"),),
        (SPARK,),
        Target(Rule.TIMES_AS_LONG, 1.1),
        Events(scale.rows, 10_000),
        windows="levels",
        settings={"windows": "levels"},
    )


def _held_item() -> Work:
    def with_upstream(upstream: str) -> Contestant:
        settings = {"levels": 2, "upstream": upstream}
        return Contestant(f"streaming, {upstream}", "small_epochs", "one_item", settings=settings)

    return Work(
        "one-item-chain",
        "an epoch with one item, windows of windows, held or not",
        (with_upstream("hold"),),
        (with_upstream("ignore"),),
        target=Target(Rule.TIMES_AS_LONG, 1.1),
        unit="ms",
    )


def _cores(scale: Scale) -> Work:
    def on_cores(cores: int) -> Contestant:
        label = "1 core" if cores == 1 else f"{cores} cores"
        return Contestant(label, "ours", "streaming", cores=cores)

    return Work(
        "cores",
        "tumbling 1 min, sum, 10,000 keys, more cores",
        (on_cores(2),),
        (on_cores(1),),
        target=Target(Rule.TIMES_AS_FAST, 1.7),
        events=Events(scale.rows, 10_000),
    )


def _memory(scale: Scale) -> Work:
    settings = {"keys": scale.rows, "per_epoch": min(100_000, scale.rows)}
    of = f"{settings['keys']:,} keys in state, epochs of {settings['per_epoch']:,}"
    return Work(
        "memory",
        f"peak memory of a Python worker, {of}",
        (Contestant("streaming", "large_state", "memory", settings=settings),),
        target=Target(Rule.AT_MOST, 400),
        unit="MB",
    )
