"""Errors of keyed steps, which name the call, the key and the exception."""

from __future__ import annotations

from flow.errors import StepError, brief, step_error
from flow.keyed.logic import FailedCall, RejectedValue
from flow.keyed.shard_logic import KeyFailure


def cause_of(error: BaseException) -> BaseException | None:
    """Return the exception to chain: the cause of an error that a logic wraps, or the error."""
    return error.__cause__ if isinstance(error, (RejectedValue, FailedCall)) else error


def raised(what: str, error: BaseException) -> str:
    """Return the error text of a call that raised an exception."""
    if isinstance(error, FailedCall) and error.__cause__ is not None:
        return f"{error.what} raised {brief(error.__cause__)}"
    return f"{what} raised {brief(error)}"


def failed_at(step_id: str, failure: KeyFailure) -> StepError:
    """Return the error of a step that runs over columns."""
    cause = failure.cause
    if isinstance(cause, RejectedValue):
        return step_error(step_id, cause.problem, key=failure.key, item=cause.value)
    problem = raised("on_batch", cause)
    return step_error(step_id, problem, key=failure.key, item=failure.value)
