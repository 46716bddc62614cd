"""Typed records: records as objects of a class that the program declares.

The class is a dataclass, a `TypedDict`, a `msgspec.Struct` or a pydantic model. msgspec converts
the first three and pydantic its own, by the rules of these libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar, cast, is_typeddict

import pyarrow as pa

from flow.dataflow import Stream, add_step
from flow.errors import FlowBuildError, FlowTypeError, package_of_extra, shorten
from flow.operators.stateless import Map, TryMap, TryOut

T = TypeVar("T")

_SAMPLES: tuple[tuple[Callable[[Any], bool], Any], ...] = (
    (pa.types.is_boolean, True),
    (pa.types.is_integer, 1),
    (pa.types.is_floating, 0.5),
    (pa.types.is_decimal, Decimal("0.5")),
    (pa.types.is_date, date(2026, 1, 1)),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz, datetime(2026, 1, 1, tzinfo=UTC)),
    (pa.types.is_timestamp, datetime(2026, 1, 1)),  # noqa: DTZ001
    (pa.types.is_time, time(1)),
    (pa.types.is_duration, timedelta(1)),
)
"""A value of a column of each type that the classes can tell from others."""


@dataclass(frozen=True)
class TypedRecords:
    """Conversion of records to objects of a class; it makes its converter where it is called.

    Attributes:
        model: the class.
    """

    model: type[Any]

    def __call__(self, record: Any) -> Any:
        """Return a record as an object.

        Raises:
            ValueError: the record does not fit the class; the text names the field.
        """
        if type(record) is tuple:
            raise ValueError(
                f"the item is no record but a tuple, {shorten(record)}: type the records before "
                "op.key_on, or those of op.records"
            )
        return self._convert(record)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the converter from the copies of workers."""
        return {"model": self.model}

    @cached_property
    def fields(self) -> dict[str, bool]:
        """True for each field of a record that it must have, by name; none with an alias.

        There are none if functions of the class may make fields of others.
        """
        if _is_pydantic(self.model):
            known = () if _sees_records(self.model) else self.model.model_fields.items()
            return {name: one.is_required() for name, one in known if not _has_alias(one)}
        from msgspec.inspect import type_info

        info: Any = type_info(self.model)
        return {one.encode_name: one.required for one in info.fields}

    @property
    def fields_read(self) -> frozenset[str] | None:
        """The fields of records that the class reads; ``None`` if it looks at all."""
        if _is_pydantic(self.model):
            looks = self.model.model_config.get("extra", "ignore") != "ignore"
            looks |= _sees_records(self.model)
            looks |= any(map(_has_alias, self.model.model_fields.values()))
        else:
            config = getattr(self.model, "__struct_config__", None)
            looks = config is not None and (config.forbid_unknown_fields or config.tag is not None)
        return None if looks else frozenset(self.fields)

    @cached_property
    def _convert(self) -> Callable[[Any], Any]:
        if _is_pydantic(self.model):
            validate: Callable[[Any], Any] = self.model.model_validate
            return validate
        with package_of_extra("typed", "msgspec", "op.typed", on_workers=True):
            import msgspec
        return partial(msgspec.convert, type=self.model)

    def check_columns(self, schema: pa.Schema, step_id: str) -> None:
        """Check that the values of columns have the types of the fields.

        Raises:
            FlowBuildError: those of a column have not.
        """
        for name in filter(self.fields.__contains__, schema.names):
            kind = schema.field(name).type
            value = next((sample for is_kind, sample in _SAMPLES if is_kind(kind)), None)
            problem = None if value is None else self._misfit(name, value)
            if problem:
                raise FlowBuildError(
                    f"step {step_id!r}: the column {name!r} has the type {kind}, which is not that "
                    f"of {self.model.__name__}.{name}: {problem}"
                )

    def _misfit(self, name: str, value: Any) -> str:
        """Return the reason why a field cannot have values of the type of one; "" if it can."""
        try:
            self({name: value})
        except ValueError as error:
            if not _is_pydantic(self.model):
                text = str(error)
                return text if f"`$.{name}`" in text and ", got " in text else ""
            found: Any = error
            wrong = [one for one in found.errors() if one["loc"] == (name,)]
            return str(wrong[0]["msg"]) if wrong and wrong[0]["type"].endswith("_type") else ""
        return ""


class _OfClass:
    """Base of steps that make objects of a class.

    Attributes:
        mapper: the conversion.
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("required",)

    mapper: Callable[[Any], Any]

    @property
    def records(self) -> TypedRecords:
        """The conversion."""
        return cast("TypedRecords", self.mapper)

    @property
    def required(self) -> tuple[str, ...]:
        """The fields that each record must have."""
        return tuple(name for name, is_required in self.records.fields.items() if is_required)


@dataclass(frozen=True)
class Typed(_OfClass, Map):
    """Turn each record into an object of a class."""


@dataclass(frozen=True)
class TryTyped(_OfClass, TryMap):
    """Turn each record into an object of a class, if it fits."""


def typed(step_id: str, up: Stream[Any], model: type[T]) -> Stream[T]:
    """Turn each record into an object of a class, for editors and type checkers.

    Fields that the class lacks are left out, and of Parquet files not read. A record that does not
    fit fails the flow; `try_typed` has a stream for those. Where the columns of the records are
    known, missing fields and other types are errors as the flow is built.

    Classes and their rules:

    - a dataclass, a `TypedDict` or a `msgspec.Struct`, by `msgspec.convert`: no number becomes
      text, nor text a number; ISO 8601 text becomes a time, base64 text becomes bytes. Needs the
      extra ``typed`` on the driver and the workers;
    - a pydantic model, by its own configuration.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read, of records.
        model: the class.

    Raises:
        FlowTypeError: when `model` is no such class.
        FlowBuildError: when the flow is built: the columns do not fit the class.
        StepError: when the flow runs: a record does not fit the class.

    Example:
        >>> import flow.operators as op
        >>> from dataclasses import dataclass
        >>> from flow.testing import run_once
        >>> @dataclass
        ... class Order:
        ...     user: str
        ...     amount: float
        >>> def described(rows):
        ...     orders = op.typed("orders", rows, Order)
        ...     return op.map("text", orders, lambda order: f"{order.user}: {order.amount}")
        >>> run_once([{"user": "ann", "amount": 2.5, "note": "left out"}], described)
        ['ann: 2.5']
    """
    return add_step(step_id, Typed(_checked(step_id, model)), up)[0]


def try_typed(step_id: str, up: Stream[Any], model: type[Any]) -> TryOut:
    """Turn each record into an object; one that does not fit is an `ItemError` on ``errors``.

    >>> import flow.operators as op
    >>> from typing import TypedDict
    >>> from flow.testing import run_once
    >>> class Order(TypedDict):
    ...     amount: int
    >>> rows = [{"amount": 2}, {"amount": "2"}]
    >>> errors = run_once(rows, lambda orders: op.try_typed("orders", orders, Order).errors)
    >>> errors[0].item, str(errors[0].exception)
    ({'amount': '2'}, 'Expected `int`, got `str` - at `$.amount`')
    """
    return TryOut(*add_step(step_id, TryTyped(_checked(step_id, model)), up))


def _checked(step_id: str, model: object) -> TypedRecords:
    """Return the conversion to a class, after a check that there is one."""
    is_struct = isinstance(model, type) and hasattr(model, "__struct_fields__")
    is_class = isinstance(model, type) and (is_dataclass(model) or is_typeddict(model))
    is_class &= not hasattr(model, "__pydantic_validator__")  # msgspec runs none of its checks
    if not (is_struct or is_class or _is_pydantic(model)):
        raise FlowTypeError(
            f"step {shorten(step_id)}: model must be a dataclass, a TypedDict, a msgspec.Struct or "
            f"a pydantic model, which a dataclass of pydantic is not, got {shorten(model)}"
        )
    conversion = TypedRecords(model)  # type: ignore[arg-type]
    with package_of_extra("typed", "msgspec", "op.typed", on_workers=True):
        try:
            _ = conversion.fields
        except (TypeError, NameError) as error:
            raise FlowTypeError(
                f"step {shorten(step_id)}: the fields of {shorten(model)} cannot be read: {error}"
            ) from error
    return conversion


def _has_alias(field: Any) -> bool:
    return field.alias is not None or field.validation_alias is not None


def _sees_records(model: Any) -> bool:
    """Return True if functions of a pydantic model get a record before its fields are known."""
    validators = model.__pydantic_decorators__.model_validators.values()
    return model.__pydantic_custom_init__ or any(one.info.mode != "after" for one in validators)


def _is_pydantic(model: object) -> bool:
    return isinstance(model, type) and hasattr(model, "model_validate")
