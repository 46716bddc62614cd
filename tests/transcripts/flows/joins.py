"""Flows of joins, and of inputs that meet."""

from __future__ import annotations

from typing import Any

import flow.operators as op
from tests.support.transcript import In, Out, Step, builder


@builder()
def join(step: Step, *sides: In, **modes: Any) -> Out:
    return {"out": op.join(step("join"), *sides, **modes)}


@builder()
def join_with_itself(step: Step, s: In) -> Out:
    doubled = op.map_value(step("double"), s, lambda n: n * 2)
    return {"out": op.join(step("join"), s, doubled, emit_mode="complete")}


@builder()
def meeting(step: Step, left: In, right: In) -> Out:
    both = op.merge(step("both"), left, right)
    return {"out": op.fold_final(step("list"), both, list, lambda kept, v: [*kept, v])}
