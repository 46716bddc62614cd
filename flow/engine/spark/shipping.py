"""A plan for workers: pickled once with its functions, and loaded once in each process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle as untyped_cloudpickle

from flow.engine.plan.plan import Plan
from flow.engine.plan.portability import check_portable
from flow.errors import FlowBuildError, error_message
from flow.garbage import collect_seldom

cloudpickle: Any = untyped_cloudpickle
_loaded_plans: dict[str, Plan] = {}
_MAX_LOADED_PLANS = 4


@dataclass(frozen=True)
class ShippedPlan:
    """A pickled plan, with the search path that a worker needs to load it.

    Attributes:
        plan_id: the plan's id.
        content: the pickled plan, with functions and classes of the main script by value.
        search_path: `sys.path` of the driver, which workers append to theirs.
    """

    plan_id: str
    content: bytes
    search_path: tuple[str, ...]

    @classmethod
    def pack(cls, plan: Plan) -> ShippedPlan:
        """Pickle a plan.

        Raises:
            FlowBuildError: when a step cannot be pickled; the error names the step and variable.
        """
        try:
            content = cloudpickle.dumps((plan, _main_classes()))
        except Exception as error:
            check_portable(plan.steps)
            raise FlowBuildError(
                f"flow {plan.flow_id!r} cannot be sent to workers: {error_message(error)}: make "
                "values that cannot be pickled inside the functions that use them"
            ) from error
        return cls(plan.plan_id, content, tuple(path for path in sys.path if path))

    def plan(self) -> Plan:
        """Return the plan, loaded at most once in a worker's process."""
        plan = _loaded_plans.get(self.plan_id)
        if plan is None:
            sys.path.extend(path for path in self.search_path if path not in sys.path)
            collect_seldom()
            plan, classes = cloudpickle.loads(self.content)
            _put_in_main(classes)
            while len(_loaded_plans) >= _MAX_LOADED_PLANS:
                del _loaded_plans[next(iter(_loaded_plans))]
            _loaded_plans[self.plan_id] = plan
        return plan


def _main_classes() -> dict[str, type]:
    """Return the classes of the main script; pickle looks for them in the module ``__main__``."""
    main = sys.modules["__main__"]
    return {
        name: value
        for name, value in vars(main).items()
        if isinstance(value, type) and value.__module__ == "__main__" and _can_be_pickled(value)
    }


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # An object that can be pickled has no such class.
        return False
    return True


def _put_in_main(classes: dict[str, type]) -> None:
    """Make the main script's classes visible to pickle; new definitions replace old ones."""
    vars(sys.modules["__main__"]).update(classes)
