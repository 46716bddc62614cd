"""One line of progress for a test run, and a sentence for all that a machine could not test."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TextIO

import pytest

WITHOUT_TERMINAL = 20.0
"""Seconds between lines of progress that no terminal overwrites."""
WITH_TERMINAL = 0.2


class Progress:
    """Plugin that writes the tests done, the failures and the time, in the place of a dot a test.

    Attributes:
        total: number of tests of the run; of each process, as all of them collect the same.
        outcomes: number of tests by outcome.
    """

    def __init__(self, reporter: pytest.TerminalReporter, stream: TextIO) -> None:
        self.total = 0
        self.outcomes = Counter[str]()
        self._reporter = reporter
        self._stream = stream
        self._begun = self._written = time.monotonic()

    @classmethod
    def install(cls, config: pytest.Config) -> None:
        """Add the plugin to a run that shows no names of tests, and not to its processes."""
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None and config.option.verbose <= 0 and not _is_process(config):
            config.pluginmanager.register(cls(reporter, sys.stderr), "progress")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show no letter for a test that is as it should be."""
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        if report.skipped and not hasattr(report, "wasxfail"):
            return "skipped", "", ""
        return None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = max(self.total, len(session.items))

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.total = max(self.total, len(ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.outcomes[report.outcome] += 1
            self._write()

    def pytest_sessionfinish(self) -> None:
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def pytest_terminal_summary(self) -> None:
        """Say what was not tested, and how to have it, as the reasons of skipped tests do."""
        skipped = Counter(
            report.longrepr[2].removeprefix("Skipped: ")
            for report in self._reporter.stats.get("skipped", ())
        )
        for reason, count in skipped.most_common():
            self._reporter.write_line(f"not tested here ({count:,}): {reason}")

    def _write(self) -> None:
        now, at_terminal = time.monotonic(), self._stream.isatty()
        if now - self._written < (WITH_TERMINAL if at_terminal else WITHOUT_TERMINAL):
            return
        self._written = now
        line = self.line(now - self._begun)
        self._stream.write(f"\r\x1b[K{line}" if at_terminal else f"{line}\n")
        self._stream.flush()

    def line(self, seconds: float) -> str:
        """Return the line of progress after so many seconds."""
        minutes, left = divmod(int(seconds), 60)
        done, failed = self.outcomes.total(), self.outcomes["failed"]
        bad = f", {failed} failed" if failed else ""
        return f"{done:,} of {self.total:,} tests{bad}, {minutes}:{left:02}"


def _is_process(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
