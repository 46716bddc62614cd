"""Values of a configuration that contradict one another, or that have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from flow.config.effective import EffectiveConfig, Setting
from flow.config.fields import FIELD, OWN_FIELD, is_secret
from flow.config.sizes import size_bytes
from flow.engine.spark.session.settings import SPEEDUPS_OF_WORKERS


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


def with_session(
    effective: EffectiveConfig, setting_in: Callable[[str], str | None]
) -> Iterator[str]:
    """Yield the settings that a session which exists contradicts, each with what to do.

    The variable ``FLOW_SPEEDUPS`` is an exception: workers of any session read it.

    Args:
        effective: the configuration.
        setting_in: returns the session's value of a setting of Spark; ``None`` if it has none.
    """
    for name, setting in _settings_of_sessions(effective):
        found = setting_in(name)
        if found is None or not _same(setting.value, found):
            secret = is_secret(name)
            own = "***" if secret else repr(setting.value)
            value = "has no value" if found is None else f"is {'***' if secret else repr(found)}"
            yield (
                f"{setting.origin}={own} cannot change the active Spark session, in which {name} "
                f"{value}: set it where that session is made, stop the session before the run, or "
                "leave the setting out"
            )


def with_jvm(effective: EffectiveConfig, heap: str) -> Iterator[str]:
    """Yield the settings of a new session that a running JVM contradicts, each with what to do.

    Args:
        effective: the configuration.
        heap: the size of the heap that the JVM was started with.
    """
    setting = effective.settings.get("driver_memory")
    if setting is not None and not _same(setting.value, heap):
        yield (
            f"{setting} cannot change the heap of Spark's JVM, which runs already with {heap!r}: "
            "give the size to spark-submit (--driver-memory), or run the flow in a new process"
        )


def _settings_of_sessions(effective: EffectiveConfig) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of Spark that only a new session takes, by name."""
    for name, field in OWN_FIELD.items():
        if field in effective.settings:
            yield name, effective.settings[field]
    speedups = effective.settings.get("speedups")
    if speedups is not None and speedups.origin != FIELD["speedups"].variable:
        yield SPEEDUPS_OF_WORKERS, replace(speedups, value="on" if speedups.value else "off")
    yield from effective.conf.items()


def _same(given: object, found: str) -> bool:
    """Return True if two values of a setting mean the same; ``2g`` is ``2048m``."""
    size = size_bytes(str(given))
    return str(given) == found or (size is not None and size == size_bytes(found))


_FIELD_FOR: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "partitions",
    "spark.sql.streaming.minBatchesToRetain": "keep_epochs of RecoveryConfig",
    "spark.app.name": "the name of the Dataflow",
}
"""Fields to set in the place of settings of Spark that a flow replaces."""
