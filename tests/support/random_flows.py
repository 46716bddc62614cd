"""Random flows, and the guarantees of the order of their items.

All streams carry one of three shapes: records (``{"id": text, "n": number}``), keyed records, and
pairs of a text and a number, so that most operators fit most streams. What a generator knows of a
stream's order (`Known`) decides which operators it may be given to, and how outputs are compared:

- a stream of one source partition has a certain order, however it is cut into epochs;
- so has what a keyed step makes of it, one item a position; what several keys make of one position,
  or at the end of input, comes in an order that depends on the number of shards;
- outputs are compared in order for each key where a keyed step has gathered them under that key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import flow.operators as op
from flow import Stream

MODULUS = 1_000_003
MAX_LEVEL = 3


class Choice(Protocol):
    """Origin of a generator's decisions: hypothesis, or a seeded generator."""

    def integer(self, least: int, most: int) -> int:
        """A number between two bounds, both inclusive."""


def pick(choose: Choice, options: Sequence[Any]) -> Any:
    """Return one of several values."""
    return options[choose.integer(0, len(options) - 1)]


class Shape(Enum):
    """Shape of a stream's items."""

    RECORD = "record"
    KEYED_RECORD = "keyed record"
    PAIR = "pair"


class Order(Enum):
    """Guarantee of a stream's order, for any epochs and shards."""

    TOTAL = "total"
    BY_KEY = "by key"
    NONE = "none"


@dataclass(frozen=True)
class Known:
    """Known properties of a stream.

    Attributes:
        shape: the shape of the items.
        order: the guarantee of the items' order.
        unique: True if no two items have the same position.
        inputs: the inputs from which the stream comes.
        levels: the levels that make items of the stream.
        gathered: True if a keyed step has brought the items of each key together.
    """

    shape: Shape
    order: Order = Order.TOTAL
    unique: bool = True
    inputs: frozenset[int] = frozenset()
    levels: frozenset[int] = frozenset({0})
    gathered: bool = False

    @property
    def level(self) -> int:
        """The highest level."""
        return max(self.levels)

    @property
    def usable(self) -> bool:
        """True if a step that depends on the order within a key may read the stream."""
        return self.order is not Order.NONE


def rekeyed(up: Known, shape: Shape) -> Known:
    """Return the properties of a stream whose items get another key, or none."""
    order = up.order if up.order is Order.TOTAL else Order.NONE
    return replace(up, shape=shape, order=order, gathered=False)


def multiplied(up: Known) -> Known:
    """Return the properties of a stream of which each item becomes several."""
    return replace(up, unique=False)


def merged(*ups: Known) -> Known:
    """Return the properties of a merge of streams."""
    inputs = frozenset[int]().union(*(up.inputs for up in ups))
    made_later = [level for up in ups for level in up.levels if level]
    certain = (
        len(inputs) == 1
        and all(up.order is Order.TOTAL for up in ups)
        and len(made_later) == len(set(made_later))
        and all(up.unique for up in ups if up.level)
    )
    return Known(
        ups[0].shape,
        Order.TOTAL if certain else Order.NONE,
        unique=False,
        inputs=inputs,
        levels=frozenset[int]().union(*(up.levels for up in ups)),
        gathered=all(up.gathered for up in ups),
    )


def one_for_one(*ups: Known) -> Known:
    """A keyed step emits one value for each, at its position."""
    up = merged(*ups) if len(ups) > 1 else ups[0]
    order = Order.TOTAL if up.order is Order.TOTAL and up.unique else Order.BY_KEY
    return gathered(up, order, up.unique)


def at_the_end(*ups: Known) -> Known:
    """A keyed step emits something at the end of input, too."""
    return gathered(merged(*ups) if len(ups) > 1 else ups[0], Order.BY_KEY, unique=False)


def gathered(up: Known, order: Order, unique: bool) -> Known:
    """Return the properties of a keyed step's output."""
    levels = frozenset({up.level + 1})
    return Known(Shape.PAIR, order, unique, up.inputs, levels, gathered=True)


def spread(up: Known) -> Known:
    """Return the properties of a stream whose items are distributed over all shards."""
    certain = up.order is Order.TOTAL and up.unique
    order = Order.TOTAL if certain else Order.NONE
    return replace(up, order=order, levels=frozenset({up.level + 1}), gathered=False)


# --- what the steps do ------------------------------------------------------------------------


def number(item: Any) -> int:
    """The number in an item of any shape."""
    plain = item[1] if isinstance(item, tuple) else item
    return int(plain["n"] if isinstance(plain, dict) else plain)


def folded(kept: int, value: Any) -> int:
    """Return a number that depends on the order of values."""
    return (kept * 31 + hash_of(value) + 1) % MODULUS


def hash_of(value: Any) -> int:
    """Return a number for a number, a list, a tuple or None."""
    if isinstance(value, (list, tuple)):
        total = 7
        for one in value:
            total = folded(total, one)
        return total
    return 13 if value is None else int(value)


def changed(record: dict[str, Any]) -> dict[str, Any]:
    return {"id": record["id"], "n": record["n"] * 3 % MODULUS}


def rekey(pair: tuple[str, int]) -> tuple[str, int]:
    return f"k{pair[1] % 3}", pair[1]


def running(state: int | None, value: int) -> tuple[int | None, int]:
    """A figure of all values so far; starts over when it happens to divide by seven."""
    total = folded(state or 0, value)
    return (None if total % 7 == 0 else total), total


def since(state: int | None, value: int) -> tuple[int, list[int]]:
    """The value before, when it was another."""
    return value, [] if state in (None, value) else [state or 0, value]


def add(left: int, right: int) -> int:
    return (left + right) % MODULUS


@dataclass(frozen=True)
class Op:
    """An operator as a generator sees it.

    Attributes:
        reads: the shapes it takes.
        build: makes the step, or steps; returns a stream, or several.
        known: what is known of each stream it makes.
        arity: how many streams it reads.
        keyed: whether it needs a shuffle.
        ordered: whether its result depends on the order of a key's items.
    """

    reads: tuple[Shape, ...]
    build: Callable[..., Any]
    known: Callable[..., Known]
    arity: int = 1
    outs: int = 1
    keyed: bool = False
    ordered: bool = False


RECORD, KEYED_RECORD, PAIR = Shape
ANY, KEYED = (RECORD, KEYED_RECORD, PAIR), (KEYED_RECORD, PAIR)


def same(up: Known) -> Known:
    return up


OPS: dict[str, Op] = {
    "filter": Op(ANY, lambda n, s: op.filter(n, s, lambda x: number(x) % 3 != 0), same),
    "branch": Op(ANY, lambda n, s: op.branch(n, s, lambda x: number(x) % 2 == 0), same, outs=2),
    "merge": Op(ANY, op.merge, merged, arity=2),
    "redistribute": Op(ANY, op.redistribute, spread, keyed=True),
    "map record": Op((RECORD,), lambda n, s: op.map(n, s, changed), same),
    "flat_map record": Op(
        (RECORD,), lambda n, s: op.flat_map(n, s, lambda r: [r] * (r["n"] % 3)), multiplied
    ),
    "key_on column": Op(
        (RECORD,), lambda n, s: op.key_on(n, s, "id"), lambda up: rekeyed(up, KEYED_RECORD)
    ),
    "key_on function": Op(
        (RECORD,),
        lambda n, s: op.key_on(n, s, lambda r: f"n{r['n'] % 3}"),
        lambda up: rekeyed(up, KEYED_RECORD),
    ),
    "key_rm": Op((KEYED_RECORD,), op.key_rm, lambda up: rekeyed(up, RECORD)),
    "number of record": Op(
        (KEYED_RECORD,),
        lambda n, s: op.map_value(n, s, lambda r: r["n"]),
        lambda up: replace(up, shape=PAIR),
    ),
    "filter_value": Op(
        KEYED, lambda n, s: op.filter_value(n, s, lambda v: number(v) % 4 != 1), same
    ),
    "map_value": Op((PAIR,), lambda n, s: op.map_value(n, s, lambda v: v * 5 % MODULUS), same),
    "flat_map_value": Op(
        (PAIR,), lambda n, s: op.flat_map_value(n, s, lambda v: range(v % 3)), multiplied
    ),
    "rekey": Op((PAIR,), lambda n, s: op.map(n, s, rekey), lambda up: rekeyed(up, PAIR)),
    "to record": Op(
        (PAIR,),
        lambda n, s: op.map(n, s, lambda pair: {"id": pair[0], "n": pair[1]}),
        lambda up: rekeyed(up, RECORD),
    ),
    "stateful_map": Op(
        (PAIR,),
        lambda n, s: op.stateful_map(n, s, running),
        one_for_one,
        keyed=True,
        ordered=True,
    ),
    "stateful_flat_map": Op(
        (PAIR,),
        lambda n, s: op.stateful_flat_map(n, s, since),
        lambda up: multiplied(one_for_one(up)),
        keyed=True,
        ordered=True,
    ),
    "collect": Op(
        (PAIR,),
        lambda n, s: op.map_value(f"{n}.sum", op.collect(n, s, "1h", 2), hash_of),
        at_the_end,
        keyed=True,
        ordered=True,
    ),
    "fold_final": Op(
        (PAIR,),
        lambda n, s: op.fold_final(n, s, int, folded),
        at_the_end,
        keyed=True,
        ordered=True,
    ),
    "reduce_final": Op((PAIR,), lambda n, s: op.reduce_final(n, s, add), at_the_end, keyed=True),
    "max_final": Op((PAIR,), op.max_final, at_the_end, keyed=True),
    "count_final": Op(
        ANY,
        lambda n, s: op.count_final(n, s, lambda x: f"c{number(x) % 3}"),
        at_the_end,
        keyed=True,
    ),
    **{
        f"join {insert_mode} {emit_mode}": Op(
            (PAIR,),
            lambda n, left, right, i=insert_mode, e=emit_mode: op.map_value(
                f"{n}.sum", op.join(n, left, right, insert_mode=i, emit_mode=e), hash_of
            ),
            at_the_end,
            arity=2,
            keyed=True,
            ordered=True,
        )
        for insert_mode, emit_mode in (
            ("first", "running"),
            ("last", "complete"),
            ("product", "final"),
        )
    },
}


# --- a flow -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A step: the name of its operator, and the numbers of the streams it reads."""

    op: str
    ups: tuple[int, ...]


@dataclass(frozen=True)
class FlowSpec:
    """A flow as data: the shapes of its inputs, which are its first streams, and its steps."""

    inputs: tuple[Shape, ...]
    steps: tuple[Step, ...] = ()

    def build(
        self, inputs: Sequence[Stream[Any]], prefix: str = ""
    ) -> dict[str, tuple[Stream[Any], Known]]:
        """Make the steps; returns the streams that no step reads, by name, to be written out."""
        streams = list(inputs)
        known = [
            Known(shape, inputs=frozenset({number})) for number, shape in enumerate(self.inputs)
        ]
        for number, step in enumerate(self.steps):
            one = OPS[step.op]
            made = one.build(f"{prefix}{number} {step.op}", *(streams[up] for up in step.ups))
            streams += made if one.outs > 1 else [made]
            known += [one.known(*(known[up] for up in step.ups))] * one.outs
        read = {up for step in self.steps for up in step.ups}
        ends = [number for number in range(len(streams)) if number not in read]
        return {f"out {number}": (streams[number], known[number]) for number in ends}


@dataclass
class _Growing:
    """A flow that is being generated."""

    choose: Choice
    certain: bool
    steps: list[Step] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)

    def grow(self) -> None:
        """Add a step that fits the streams there are."""
        name = pick(self.choose, [name for name, one in OPS.items() if self._ways(one)])
        ups = pick(self.choose, self._ways(OPS[name]))
        self.steps.append(Step(name, ups))
        self.known += [OPS[name].known(*(self.known[up] for up in ups))] * OPS[name].outs

    def _ways(self, one: Op) -> list[tuple[int, ...]]:
        fitting = [
            number
            for number, up in enumerate(self.known)
            if up.shape in one.reads and not (one.keyed and up.level == MAX_LEVEL)
        ]
        if one.arity == 1:
            ways = [(up,) for up in fitting]
        else:
            ways = [
                (left, right)
                for left in fitting
                for right in fitting
                if self.known[left].shape is self.known[right].shape
            ]
        return [way for way in ways if self._in_order(one, way)]

    def _in_order(self, one: Op, way: tuple[int, ...]) -> bool:
        """Return True if the step's result is the same for all epochs and shards."""
        if not (self.certain and one.ordered):
            return True
        ups = [self.known[up] for up in way]
        return (merged(*ups) if len(ups) > 1 else ups[0]).usable


def random_flow(choose: Choice, *, certain: bool) -> FlowSpec:
    """A random flow.

    Args:
        choose: makes the decisions.
        certain: whether its results must be the same however its input is cut into epochs and its
            keys are dealt out to shards.
    """
    shapes = tuple(pick(choose, (RECORD, PAIR)) for _ in range(choose.integer(1, 2)))
    known = [Known(shape, inputs=frozenset({number})) for number, shape in enumerate(shapes)]
    growing = _Growing(choose, certain, known=known)
    for _ in range(choose.integer(1, 8)):
        growing.grow()
    return FlowSpec(shapes, tuple(growing.steps))
