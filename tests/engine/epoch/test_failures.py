"""Transport of failures from a worker to the process that started the flow."""

from __future__ import annotations

import pytest

from flow import SourceError, TimestampError
from flow.columns.chunks import Items, positions
from flow.engine.epoch.failures import decode_failure, encode_failure, portable, user_trace
from flow.errors import FlowError, StepError, step_error
from flow.operators.stateless import Map
from tests.support.one_stream import made


class TakesTwo(Exception):
    """Pickles, but does not read back: pickle calls it with one argument."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class HoldsAFunction(Exception):
    """Does not pickle at all."""

    def __init__(self) -> None:
        super().__init__("held")
        self.function = lambda: None


def inverse(number: int) -> float:
    return 1 / number


def failed_step() -> StepError:
    """A step error as the engine raises it, with the user's own exception as its cause."""
    with pytest.raises(StepError) as caught:
        made(Map(inverse), Items([0], positions(0, 0, 0, 1)))
    return caught.value


def round_trip(error: FlowError) -> FlowError:
    return decode_failure(encode_failure(error))


def test_a_step_error_keeps_its_attributes() -> None:
    error = round_trip(step_error("step", "broke", key="k", item={"n": 1}))
    assert isinstance(error, StepError)
    assert (error.step_id, error.problem) == ("step", "broke")
    assert (error.key, error.item) == ("k", "{'n': 1}")
    assert error.__cause__ is None


def test_other_errors_keep_their_type() -> None:
    error = round_trip(SourceError("no such file"))
    assert (type(error), str(error)) == (SourceError, "no such file")


def test_the_cause_is_kept_and_notes_the_line_of_user_code_that_raised_it() -> None:
    cause = round_trip(failed_step()).__cause__
    assert (type(cause), str(cause)) == (ZeroDivisionError, "division by zero")
    (note,) = cause.__notes__  # type: ignore[union-attr]
    assert note.startswith("raised in a worker at:\n")
    assert "in inverse\n    return 1 / number" in note
    assert (note.count("File "), "test_failures.py" in note) == (1, True), "no frames of the engine"


def test_an_exception_that_was_never_raised_has_no_trace() -> None:
    assert user_trace(ValueError("x")) == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [(HoldsAFunction(), "HoldsAFunction: held"), (TakesTwo(5, "no"), "TakesTwo: 5: no")],
)
def test_an_exception_that_cannot_be_pickled_becomes_its_text(error: Exception, text: str) -> None:
    replaced = portable(error)
    assert (type(replaced), str(replaced)) == (RuntimeError, text)


def test_an_exception_that_can_be_pickled_is_unchanged() -> None:
    error = TimestampError("naive")
    assert portable(error) is error


def test_a_cause_that_cannot_be_pickled_does_not_stop_the_error() -> None:
    error = step_error("step", "broke", item=1)
    error.__cause__ = HoldsAFunction()
    arrived = round_trip(error)
    assert str(arrived) == "step 'step': broke\n  item: 1"
    assert str(arrived.__cause__) == "HoldsAFunction: held"
