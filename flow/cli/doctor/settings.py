"""Checks of the configuration: contradictions, misspelt variables, memory and parallelism."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from flow.cli.doctor.finding import Finding, ok, problem, warning
from flow.config.effective import EffectiveConfig
from flow.config.fields import FIELDS
from flow.config.machine import size_text, this_machine
from flow.config.problems import advice, refused, without_effect

SUBJECT = "Configuration"
_OTHER_VARIABLES = ("FLOW_PRELOAD", "FLOW_KAFKA_JARS", "FLOW_BENCHMARK_SAMPLES")
"""Variables of this project that are no fields of a configuration."""


def configuration_findings(effective: EffectiveConfig) -> Iterator[Finding]:
    """Check a configuration; name each contradiction, or else the values that are set."""
    findings = [
        *(problem(SUBJECT, text) for text in refused(effective)),
        *(warning(SUBJECT, text) for text in without_effect(effective)),
        *_variable_findings(os.environ),
    ]
    if not findings:
        names = [*effective.settings, *(f"conf {name}" for name in effective.conf)]
        given = [f"{name} ({_origin(effective, name)})" for name in names]
        findings = [ok(SUBJECT, f"set: {', '.join(given)}" if given else "defaults")]
    yield from findings


def machine_findings(effective: EffectiveConfig) -> Iterator[Finding]:
    """Check that memory and parallelism fit this machine."""
    machine = this_machine()
    texts = list(advice(effective, machine))
    for text in texts:
        yield warning("Machine", text)
    if not texts:
        memory = "memory unknown" if machine.usable is None else size_text(machine.usable)
        cpus = "1 CPU" if machine.cpus == 1 else f"{machine.cpus} CPUs"
        yield ok("Machine", f"{machine.place} has {cpus}, {memory}")


def _origin(effective: EffectiveConfig, name: str) -> str:
    key = name.removeprefix("conf ")
    return effective.conf[key].origin if key in effective.conf else effective.origin(name)


def _variable_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield warnings of variables whose names are close to those of fields."""
    known = [field.variable for field in FIELDS]
    for name in sorted(environ):
        if name.startswith("FLOW_") and name not in (*known, *_OTHER_VARIABLES):
            close = get_close_matches(name, known, n=1, cutoff=0.8)
            if close:
                text = f"the variable {name} has no effect: is it {close[0]}?"
                yield warning(SUBJECT, text)
    options = environ.get("PYSPARK_SUBMIT_ARGS", "")
    if options.strip() not in ("", "pyspark-shell"):
        text = (
            f"PYSPARK_SUBMIT_ARGS is {options!r}, which may replace settings of a run: unset it "
            "and use FLOW_CONF"
        )
        yield warning(SUBJECT, text)
