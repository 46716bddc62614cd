"""Platforms of Spark: their facts with sources, and the parts of flow that work there by rule.

The facts are data, in ``runtimes.toml`` beside this module. `NEEDS` is the rule: the words of facts
that each part of flow needs in this version.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal

from flow import __version__
from flow.cli.command_line import CommandError
from flow.engine.spark.session.versions import SUPPORTED, parse_version

FACTS = (
    *("spark", "session", "jvm", "rows", "pandas", "triggers"),
    *("network", "settings", "python", "files", "packages"),
)
"""The names of facts, in the order in which they are shown."""

Answer = Literal["yes", "expected", "no", "unknown"]
"""The answer to the question if a part of flow works: ``"yes"`` after a test there, and
``"expected"`` if the facts meet all needs, but nobody has tried it."""


@dataclass(frozen=True)
class Fact:
    """A fact of a platform.

    Attributes:
        word: the value that the rule reads, such as ``"yes"`` or ``"4.1"``.
        address: the address of the source.
        date: the date of the source, or of the day on which a copy without a date was read.
        note: what the source says besides; may be empty.
    """

    word: str
    address: str
    date: str
    note: str = ""

    def __str__(self) -> str:
        """Return the word and the note."""
        return f"{self.word}: {self.note}" if self.note else self.word


@dataclass(frozen=True)
class Verdict:
    """A part of flow on a platform.

    Attributes:
        answer: the answer of the rule.
        test: the path of the test that has run the part there; ``None`` if it was not tried.
        reason: the unmet need, or the facts that are not known; empty if the part works.
    """

    answer: Answer
    test: str | None
    reason: str = ""

    def __str__(self) -> str:
        """Return the answer, and if a test gave it, in a few words."""
        return f"{self.answer}, {'tested' if self.test else 'not tried'}"


@dataclass(frozen=True)
class Need:
    """A need of flow that a fact meets or not.

    Attributes:
        fact: the name of the fact.
        is_met: returns True if the fact's word meets the need.
        otherwise: the reason why flow does not work where the need is not met.
        instead: a need that is enough in its place; ``None`` without one.
    """

    fact: str
    is_met: Callable[[str], bool]
    otherwise: str
    instead: Need | None = None

    def holds(self, facts: Mapping[str, Fact]) -> bool | None:
        """Return True if the facts meet the need, and ``None`` if none of them decides."""
        fact = facts.get(self.fact)
        is_met = None if fact is None else self.is_met(fact.word)
        if is_met or self.instead is None:
            return is_met
        return self.instead.holds(facts) or is_met


def _least(fact: str, number: tuple[int, int], user: str) -> Need:
    """Return the need of a version of Spark or of Python."""
    needed = f"{user} on {fact.title()} {number[0]}.{number[1]} and later"
    return Need(fact, lambda word: parse_version(word) >= number, needed)


_BATCH = (
    _least("spark", parse_version(SUPPORTED[0]), "flows run"),
    _least("python", (3, 11), "flows run"),
)
_SETTINGS = Need("settings", "listed".__ne__, "a stream needs settings that may not be set there")
_JVM = Need("jvm", "yes".__eq__, "tools that read state need the JVM of the driver")
_OVER_CONNECT = _least("spark", (4, 1), "streams run without a JVM in reach")
_HOST = Need("jvm", "yes".__eq__, _OVER_CONNECT.otherwise, _OVER_CONNECT)
_NETWORK = "Kafka's client runs in tasks without network: read by DataFrameSource, in the JVM"
NEEDS: Mapping[str, tuple[Need, ...]] = {
    "Batch": _BATCH,
    "Stream": (*_BATCH, _SETTINGS, _HOST),
    "Kafka": (*_BATCH, Need("network", "yes".__eq__, _NETWORK)),
    "Live page": _BATCH,
    "Recovery tools": (_BATCH[0], _JVM),
}
"""The needs of each part of flow in this version. A stream includes its recovery, Kafka is read and
written by a batch or a stream, and the live page shows either."""


@dataclass(frozen=True)
class Runtime:
    """A platform on which Spark runs.

    Attributes:
        title: the name for people.
        page: the path of its page in the docs.
        settings: what to set or to choose there.
        facts: its known facts by name.
        tested: the paths of tests by part of flow.
    """

    title: str
    page: str
    settings: tuple[str, ...]
    facts: Mapping[str, Fact]
    tested: Mapping[str, str]

    def verdict(self, part: str) -> Verdict:
        """Return the verdict on a part of flow: a need that is not met precedes unknown facts.

        Settings that are not known to be restricted count as free.
        """
        test, unknown = self.tested.get(part), list[str]()
        for need in NEEDS[part]:
            holds = need.holds(self.facts)
            if holds is False:
                fact = self.facts[need.fact]
                return Verdict("no", test, f"{need.otherwise} ({need.fact} {fact})")
            if holds is None and need.fact != "settings":
                unknown.append(need.fact)
        if unknown:
            return Verdict("unknown", test, f"no source was found for {', '.join(unknown)}")
        return Verdict("yes" if test else "expected", test)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the doctor: verdicts, settings, facts with sources, and the page."""
        yield f"{self.title}, with flow-windows {__version__}"
        for part in NEEDS:
            verdict = self.verdict(part)
            tried = f"tested by {verdict.test}" if verdict.test else "not tried"
            yield _line(verdict.answer, part, "; ".join(filter(None, (verdict.reason, tried))))
        yield from (_line("set", "", setting) for setting in self.settings)
        for name in FACTS:
            fact = self.facts.get(name)
            text = f"{fact} ({fact.address}, {fact.date})" if fact else "not known"
            yield _line("fact", name, text)
        yield _line("page", "", self.page)


def _line(kind: str, subject: str, text: str) -> str:
    return f"{kind:8} {subject:18} {text}"


@cache
def runtimes() -> Mapping[str, Runtime]:
    """Return the platforms by their names on the command line, in the order of the data."""
    data = tomllib.loads(Path(__file__).with_name("runtimes.toml").read_text("utf-8"))
    return {name: _runtime(row, data["sources"]) for name, row in data["runtimes"].items()}


def _runtime(row: Mapping[str, Any], sources: Mapping[str, list[str]]) -> Runtime:
    given = {name: row[name] for name in FACTS if name in row}
    facts = {
        name: Fact(word, *sources[source], *note) for name, (word, source, *note) in given.items()
    }
    page = f"docs/how_to/platforms/{row['page']}.md"
    return Runtime(row["title"], page, tuple(row["set"]), facts, row.get("tested", {}))


def runtime_lines(name: str) -> Iterator[str]:
    """Yield the lines about a platform; those of the list of names for an empty name.

    Raises:
        CommandError: if there is no platform of this name.
    """
    known = runtimes()
    if not name:
        return (f"{each:22} {runtime.title}" for each, runtime in known.items())
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"is it {close[0]}?" if close else "--runtime without a name lists the names"
        raise CommandError(f"--runtime: there is no platform {name!r}: {hint}")
    return known[name].lines()
