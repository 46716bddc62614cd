"""`FlowConfig`: the configuration of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

from flow.config.fields import FIELDS, is_secret
from flow.durations import Duration

if TYPE_CHECKING:
    from flow.engine.checkpoint.admission import Recovery

EngineName: TypeAlias = Literal["auto", "batch", "streaming"]
Trigger: TypeAlias = Duration | Literal["available"]


@dataclass(frozen=True, repr=False)
class FlowConfig:
    """The configuration of a run: how a flow runs, and not what it computes.

    ``run(flow, config=FlowConfig(...))`` takes it beside its other arguments. A value comes from
    the first of these places that sets it: an option of ``python -m flow.run``, or an argument of
    `run`; an environment variable, such as ``FLOW_MASTER``; this object; the default. Only `conf`
    is merged from all places, each setting of Spark by this rule.

    Args:
        recovery: the checkpoint, a `RecoveryConfig`; by default none.
        engine: ``"batch"`` or ``"streaming"``; ``"auto"`` is a batch for a flow whose inputs all
            end, without `recovery` and `trigger`.
        trigger: the interval at which epochs start; ``"available"`` to read all available items
            and stop; by default, an epoch starts as soon as items are available.
        drain: True to close open windows when the run ends by itself, False to leave them in the
            checkpoint; by default, True if all sources have an end.
        shards: the number of shards of the key space; fixed for a checkpoint's life.
        partitions: the number of partitions of each level; fixed for a checkpoint's life; by
            default `parallelism`.
        parallelism: the number of parts into which inputs are read; by default the cores that
            `master` gives.
        master: Spark's master URL; by default ``local[*]``.
        driver_memory: the heap of the JVM that this process starts, such as ``"4g"``.
        conf: further settings of Spark. A setting that has a field of its own, such as
            ``spark.driver.memory``, counts as that field.
        py_files: the user's modules to send to a cluster's workers.
        speedups: False to switch off the optional speed-ups.
        log_level: the level of Spark's log.
        web: the address of the live page, such as ``"127.0.0.1:4041"``.
        web_values: True to show keys, the contents of windows and late values on the live page.

    `parallelism`, `master`, `driver_memory`, `conf`, `py_files`, `speedups` and `log_level` are for
    a new Spark session.

    Raises:
        FlowBuildError: if a value is wrong; the error names the field, the value and what is
            allowed.

    >>> FlowConfig(master="local[4]", driver_memory="8g")
    FlowConfig(master='local[4]', driver_memory='8g')
    """

    recovery: Recovery | None = None
    engine: EngineName = "auto"
    trigger: Trigger | None = None
    drain: bool | None = None
    shards: int | None = None
    partitions: int | None = None
    parallelism: int | None = None
    master: str | None = None
    driver_memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, hash=False)
    py_files: Sequence[str | os.PathLike[str]] = ()
    speedups: bool = True
    log_level: str = "WARN"
    web: str | None = None
    web_values: bool = False

    def __post_init__(self) -> None:
        for each in FIELDS:
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                checked = each.check(f"FlowConfig: {each.name}", value)
                object.__setattr__(self, each.name, checked)

    def __repr__(self) -> str:
        """Return the call that makes the object, without secret values of `conf`."""
        values = self.given()
        if self.conf:
            values["conf"] = {k: "***" if is_secret(k) else v for k, v in self.conf.items()}
        return f"FlowConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def given(self) -> dict[str, object]:
        """Return the values of the fields that differ from their defaults, by name.

        >>> FlowConfig(shards=32, log_level="warn").given()
        {'shards': 32}
        """
        defaults = {each.name: each.default for each in FIELDS}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value != defaults[name]}
