"""A plan on its way to workers: pickled once with its functions, read once in each process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle as untyped_cloudpickle

from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError, shorten
from flow.garbage import collect_seldom

cloudpickle: Any = untyped_cloudpickle
_read: dict[str, Plan] = {}
_KEPT_PLANS = 4


@dataclass(frozen=True)
class ShippedPlan:
    """A plan as bytes, with what a worker needs to read it.

    Attributes:
        plan_id: the plan's id.
        content: the plan, pickled by value where it was written in the main script.
        search_path: where modules are found here; a worker looks there too.
    """

    plan_id: str
    content: bytes
    search_path: tuple[str, ...]

    @classmethod
    def pack(cls, plan: Plan) -> ShippedPlan:
        """Pickle a plan.

        Raises:
            FlowBuildError: when a step holds something that cannot be pickled; it names the step.
        """
        for step in plan.steps.values():
            try:
                cloudpickle.dumps(step)
            except Exception as error:
                raise FlowBuildError(
                    f"step {step.step_id!r} cannot be sent to workers: {error}: "
                    f"make what it holds inside its functions ({shorten(step.operator)})"
                ) from error
        content = cloudpickle.dumps((plan, _main_classes()))
        return cls(plan.plan_id, content, tuple(path for path in sys.path if path))

    def plan(self) -> Plan:
        """The plan, read at most once in each process: a worker's, which then works for it."""
        plan = _read.get(self.plan_id)
        if plan is None:
            sys.path.extend(path for path in self.search_path if path not in sys.path)
            collect_seldom()
            plan, classes = cloudpickle.loads(self.content)
            _put_in_main(classes)
            while len(_read) >= _KEPT_PLANS:
                del _read[next(iter(_read))]
            _read[self.plan_id] = plan
        return plan


def _main_classes() -> dict[str, type]:
    """The classes of the main script: values of theirs are pickled by the name ``__main__``."""
    main = sys.modules["__main__"]
    return {
        name: value
        for name, value in vars(main).items()
        if isinstance(value, type) and value.__module__ == "__main__" and _travels(value)
    }


def _travels(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # a class that cannot travel is not needed by what can
        return False
    return True


def _put_in_main(classes: dict[str, type]) -> None:
    """Let pickle find the main script's classes; a class defined anew takes the old one's place."""
    vars(sys.modules["__main__"]).update(classes)
