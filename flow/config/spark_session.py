"""The Spark session of a run: given, made by the program before, or new."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from flow.config.config_problems import advice, with_jvm, with_session
from flow.config.effective_config import DEFAULT, EffectiveConfig
from flow.config.flow_config import FIELD
from flow.config.machine import this_machine
from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError
from flow.process import own_handlers_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("flow")
_STARTING = threading.Lock()
"""Held while a session starts, which changes variables of this process for that time."""


def session_for(
    plan: Plan,
    effective: EffectiveConfig,
    given: SparkSession | None,
    active: SparkSession | None = None,
) -> SparkSession:
    """Return the session that a flow runs on.

    It is the given one; else that of a data frame which the flow reads; else the active one, of
    Spark Connect too; else a new one.

    Args:
        plan: the flow.
        effective: the configuration.
        given: the session that the user passes.
        active: the active session of the user's thread, if this is another one.

    Raises:
        FlowBuildError: if settings of a new session are given, and the session has other values.
        EnvironmentProblem: if Java is missing or too old.
        EngineError: if Spark does not start.
    """
    from flow.engine.spark.input_frames import session_of_frames

    if given is None:
        return session_named(plan.flow_id, effective, session_of_frames(plan) or active)
    _check_given_alone(effective)
    return given


def session_named(
    name: str, effective: EffectiveConfig, of_program: SparkSession | None = None
) -> SparkSession:
    """Return the session of the program, or start a session and log advice on its configuration.

    Args:
        name: the name of a new session.
        effective: the configuration.
        of_program: the session of the program; by default the active one.

    Raises:
        FlowBuildError: if the session of the program contradicts the configuration.
        EnvironmentProblem: if Java is missing or too old.
        EngineError: if Spark does not start.
    """
    from flow.engine.spark.session.session import active_session

    with _STARTING:
        session = of_program or active_session()
        return _started(name, effective) if session is None else _joined(session, effective)


def _check_given_alone(effective: EffectiveConfig) -> None:
    """Raise a `FlowBuildError` if settings of a new session are given together with a session.

    The variable ``FLOW_SPEEDUPS`` is an exception: workers of any session read it.
    """
    names = dict.fromkeys(each.origin for each in effective.for_new_session() if each.value != ())
    given = [name for name in names if name != FIELD["speedups"].variable]
    if given:
        raise FlowBuildError(
            f"{' and '.join(given)} cannot change the session that spark= names: set it where "
            "that session is made, or leave out spark="
        )


def _joined(session: Any, effective: EffectiveConfig) -> Any:
    """Return a session of the program, whose workers have the user's files.

    Raises:
        FlowBuildError: if the session contradicts the configuration.
    """
    from flow.engine.spark.session.session import send_files, setting_in

    _refuse(with_session(effective, partial(setting_in, session)))
    send_files(session, effective.config().py_files)
    return session


def _refuse(problems: Iterable[str]) -> None:
    """Raise a `FlowBuildError` with the problems, if there are any."""
    text = "; ".join(problems)
    if text:
        raise FlowBuildError(text)


def _started(name: str, effective: EffectiveConfig) -> SparkSession:
    """Start a session, and log advice on its configuration.

    Raises:
        FlowBuildError: if the JVM runs already, with another heap than the configuration's.
    """
    from flow.engine.spark.session.jvm import environment, heap_of_jvm, starts_jvm
    from flow.engine.spark.session.session import SparkSettings, make_session
    from flow.engine.spark.session.session_settings import switched

    config = effective.config()
    if starts_jvm():
        for text in advice(effective, this_machine()):
            logger.warning("%s", text)
    else:
        _refuse(with_jvm(effective, heap_of_jvm()))
    speedups = switched(config.speedups) if effective.origin("speedups") != DEFAULT else {}
    conf = {**effective.spark_conf(), **{f"spark.executorEnv.{k}": v for k, v in speedups.items()}}
    files = tuple(os.fspath(file) for file in config.py_files)
    log_level = None if effective.origin("log_level") == DEFAULT else config.log_level
    settings = SparkSettings(config.master, conf, log_level, files)
    with own_handlers_kept(), environment(speedups):
        return make_session(name, settings)
