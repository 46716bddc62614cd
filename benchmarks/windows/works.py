"""What is compared with what, and what each comparison must reach: the rows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from benchmarks.windows.data import FILES, Events, Form, Spread

FIGURES = {"tumbling": ("total",), "sliding": ("total", "mean"), "session": ("n",)}
"""What is worked out of each kind of windows."""


@dataclass(frozen=True)
class Scale:
    """How large everything is.

    Attributes:
        rows: how many events there are, and how many keys in a large state.
        cores: how many cores contestants use.
    """

    rows: int = 5_000_000
    cores: int = 2

    @property
    def files_per_epoch(self) -> int:
        """Of how many files an epoch of a streaming engine is."""
        return FILES // 5

    @property
    def epoch_rows(self) -> int:
        """How many events those hold."""
        return self.rows // 5


@dataclass(frozen=True)
class Contestant:
    """Somebody who does a work.

    Attributes:
        name: what the table says.
        module: the module of this package that does it.
        function: which of its functions.
        needs: the package that has to be installed, if any.
        settings: what else it is told.
        cores: how many cores it uses, if not as many as all.
    """

    name: str
    module: str
    function: str
    needs: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cores: int | None = None


class Rule(Enum):
    """How a figure of ours is judged."""

    TIMES_AS_FAST = "at least {:g}x as fast"
    TIMES_AS_LONG = "at most {:g}x as long"
    AT_MOST = "at most {:g}"


@dataclass(frozen=True)
class Target:
    """What a work must reach."""

    rule: Rule
    limit: float

    def ratio(self, ours: float, theirs: float | None) -> float | None:
        """Our figure beside the best of those it is held against, when there is one."""
        if self.rule is Rule.AT_MOST or theirs is None or not ours or not theirs:
            return None
        return theirs / ours if self.rule is Rule.TIMES_AS_FAST else ours / theirs

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """Whether it is reached; ``None`` when there is nothing to hold it against."""
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
        name: what it is called on the command line.
        title: what the table says.
        ours: who does it on our side.
        against: who they are held against, the best of them.
        beside: who is shown besides.
        target: what ours must reach; ``None`` when it is only shown.
        events: what is read, if that is a data set.
        unit: what figures are in: ``s``, ``ms`` or ``MB``.
        windows: which windows are worked out.
        settings: what all contestants are told.
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
        """All of them."""
        return self.ours + self.against + self.beside

    @property
    def figures(self) -> tuple[str, ...]:
        """What of each window all contestants have to agree on."""
        return FIGURES[self.windows]


STREAMING = Contestant("streaming", "ours", "streaming")
SPARK = Contestant("Spark's own", "spark_peer", "streaming")
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
    """All comparisons at a scale, in the order of the table."""
    return (
        _against_spark(scale, "tumbling-10k", "tumbling 1 min, sum", 10_000, 8),
        _against_spark(scale, "tumbling-1m", "tumbling 1 min, sum", 1_000_000, 6),
        _against_spark(scale, "tumbling-10", "tumbling 1 min, sum", 10, None),
        _against_spark(scale, "tumbling-zipf", "tumbling 1 min, sum", 1_000_000, None, Spread.ZIPF),
        _against_spark(scale, "sliding", "sliding 1 min by 15 s, sum and mean", 10_000, 8),
        _against_spark(scale, "session", "sessions of gap 30 s, count", 10_000, 6),
        _against_batch(scale, "batch", "batch engine", "batch", 0.3),
        _against_batch(
            scale, "batch-streaming", "streaming with recovery", "streaming_whole", 0.15
        ),
        _fold(scale, 10, 1),
        _fold(scale, 1_000, 4),
        _fold(scale, 100_000, 20),
        _few_keys(scale),
        _one_item("one-item", "an epoch with one item, one level", 1, 300),
        _one_item("one-item-2", "an epoch with one item, two levels", 2, 450),
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


def _few_keys(scale: Scale) -> Work:
    def with_keys(keys: int) -> Contestant:
        return Contestant(
            f"{keys:,} keys in state", "large_state", "few_keys", settings={"keys": keys}
        )

    return Work(
        "few-keys",
        "an epoch that touches 1,000 keys",
        (with_keys(scale.rows),),
        (with_keys(10_000),),
        target=Target(Rule.TIMES_AS_LONG, 2),
        unit="ms",
    )


def _one_item(name: str, title: str, levels: int, milliseconds: float) -> Work:
    one = Contestant("streaming", "small_epochs", "one_item", settings={"levels": levels})
    return Work(name, title, (one,), target=Target(Rule.AT_MOST, milliseconds), unit="ms")


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
