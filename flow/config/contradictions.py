"""Values of a configuration that contradict one another, or that have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flow.config.effective import EffectiveConfig


def refused(effective: EffectiveConfig) -> Iterator[str]:
    """Yield the contradictions for which a run is refused, each with what to do."""
    if effective.value("engine") == "batch" and effective.value("recovery") is not None:
        yield (
            f"engine batch ({effective.origin('engine')}) keeps no state to recover, and recovery "
            f"is set ({effective.origin('recovery')}): leave out one of the two"
        )
    options = effective.conf.get("spark.driver.extraJavaOptions")
    if options is not None and "-Xmx" in options.value:
        yield f"{options.origin} sets the heap with -Xmx, which Spark refuses: set driver_memory"


def without_effect(effective: EffectiveConfig, fixed: Mapping[str, str]) -> Iterator[str]:
    """Yield the values that have no effect in a run, each with what to do.

    Args:
        effective: the configuration.
        fixed: the settings of Spark that a flow sets itself.
    """
    if effective.value("engine") == "batch" and effective.value("trigger") is not None:
        yield (
            f"trigger ({effective.origin('trigger')}) has no effect with engine batch "
            f"({effective.origin('engine')}): leave out one of the two"
        )
    if effective.value("drain") is False and effective.value("recovery") is None:
        yield (
            f"drain off ({effective.origin('drain')}) leaves windows open for the next run, and "
            "without recovery no run continues them: set recovery, or drain to on"
        )
    for name, field in _FIELD_FOR.items():
        if name in effective.conf:
            yield f"{effective.conf[name].origin} has no effect: set {field}"
    for name, value in fixed.items():
        setting = effective.conf.get(name)
        if setting is not None and setting.value != value:
            yield (f"{setting.origin} has no effect, because a flow needs {value!r}: remove it")


_FIELD_FOR: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "partitions",
    "spark.sql.streaming.minBatchesToRetain": "keep_epochs of RecoveryConfig",
    "spark.app.name": "the name of the Dataflow",
}
"""Fields to set in the place of settings of Spark that a flow replaces."""
