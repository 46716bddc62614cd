"""Tables of the docs and of the README about platforms, made of the doctor's data.

After a change of ``flow/doctor/runtimes.toml`` or of the rule, write the tables again:

    python -m tests.support.runtimes --write
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from flow.doctor.runtimes import FACTS, NEEDS, Fact, Runtime, runtimes

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FOLDER = "docs/how_to/platforms"
PAGES = sorted({ROOT / runtime.page for runtime in runtimes().values()})
HEADING = (
    f"| platform | {' | '.join(part.lower() for part in NEEDS)} |\n|---|{'---|' * len(NEEDS)}\n"
)
FACTS_HEADING = "## Facts\n"
INTRODUCTION = (
    "Each fact has the address and the date of its source. `flow/doctor/runtimes.toml` holds\n"
    "them, and [the list of platforms](index.md) says what the words mean."
)


def table() -> str:
    """Return the table of the README: a row for each platform, a column for each part of flow."""
    rows = (
        f"| `{name}` | {' | '.join(str(runtime.verdict(part)) for part in NEEDS)} |\n"
        for name, runtime in runtimes().items()
    )
    return HEADING + "".join(rows)


def facts(page: Path) -> str:
    """Return the part of a page that begins at the heading of the facts."""
    here = {name: each for name, each in runtimes().items() if ROOT / each.page == page}
    parts = (_platform(name, runtime) for name, runtime in here.items())
    return f"{FACTS_HEADING}\n{INTRODUCTION}\n\n" + "\n".join(parts)


def _platform(name: str, runtime: Runtime) -> str:
    return "".join(f"{line}\n" for line in _lines(name, runtime))


def _lines(name: str, runtime: Runtime) -> Iterator[str]:
    yield f"### {runtime.title}"
    yield ""
    yield f"`python -m flow.doctor --runtime {name}`"
    yield ""
    yield "| part | works | reason |"
    yield "|---|---|---|"
    for part in NEEDS:
        verdict = runtime.verdict(part)
        yield f"| {part} | {verdict} | {verdict.reason} |"
    yield ""
    yield "| fact | | source |"
    yield "|---|---|---|"
    for fact in FACTS:
        known = runtime.facts.get(fact)
        yield f"| {fact} | {known or 'not known'} | {_source(known) if known else ''} |"


def _source(fact: Fact) -> str:
    """Return the link to a source and its date; a file of this project is named, not linked."""
    host = urlsplit(fact.address).netloc
    link = f"[{host}]({fact.address})" if host else f"`{fact.address}`"
    return f"{link}, {fact.date}"


def before_facts(page: Path) -> str:
    """Return the part of a page that is written by hand."""
    return page.read_text("utf-8").partition(FACTS_HEADING)[0]


def readme_with(new: str) -> str:
    """Return the README with a table in the place of its table of platforms."""
    before, heading, rest = README.read_text("utf-8").partition(HEADING)
    return before + new + re.sub(r"\A(\|.*\n)*", "", rest) if heading else before


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    README.write_text(readme_with(table()), "utf-8")
    for path in PAGES:
        path.write_text(before_facts(path) + facts(path), "utf-8")
