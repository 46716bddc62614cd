"""Options of Java for the many short programs of a test run."""

from __future__ import annotations

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""In a short run, compiling hot code well costs more than it gives, as threads of a collector do.

Spark's start with its first query takes half the processor time. Sessions that this project makes
have these options by themselves; sessions of users and processes of a cluster do not.
"""

QUICK_SUBMIT = {"SPARK_SUBMIT_OPTS": " ".join(QUICK)}
"""The environment of a program that makes a session by itself."""

QUICK_CLUSTER = {"SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK)}
"""The environment of the master and the workers of a standalone cluster."""
