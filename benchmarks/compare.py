"""Compare the speed of windows with Spark's own windows, Bytewax, DuckDB and Polars.

::

    python benchmarks/compare.py                                # everything: hours
    python benchmarks/compare.py tumbling-10k session --rows 500000
    python benchmarks/compare.py --list
    python benchmarks/compare.py --profile tumbling-10k         # the parts of an epoch's time
    python benchmarks/compare.py --beside ../other session      # this checkout beside another one

All contestants read the same generated events and run in turn, each time in a fresh process; the
table shows medians. The command also compares their answers. ``docs/explanation/performance.md``
explains each row. ``pip install 'flow-windows[benchmarks]'`` installs the peers; the command leaves
out those that are not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.windows.beside import PAIRS, checkout, measure_beside
from benchmarks.windows.machine import describe, headline
from benchmarks.windows.measuring import PATIENCE, ROOT, Bench, Measured, Say, as_json
from benchmarks.windows.profiling import profile_work
from benchmarks.windows.table import as_markdown, as_text, put_into
from benchmarks.windows.works import Scale, Work, all_works


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table; 0 when all answers agree and nothing failed."""
    options = _parser().parse_args(arguments)
    scale = Scale(options.rows, options.cores)
    works = {work.name: work for work in all_works(scale)}
    if options.list:
        print(*(f"{work.name:16} {work.title}" for work in works.values()), sep="\n")
        return 0
    unknown = [name for name in [*options.works, options.profile] if name and name not in works]
    if unknown:
        print(f"there is no work called {', '.join(unknown)}: see --list", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="flow-benchmark-") as temporary:
        home = Path(options.folder or temporary)
        bench = Bench(home, scale, options.runs, _printer(), options.patience)
        if options.profile:
            print(profile_work(bench, works[options.profile]))
            return 0
        chosen = [works[name] for name in options.works] or list(works.values())
        if options.beside:
            return measure_beside(bench, chosen, options.beside, options.pairs)
        return _measure(bench, chosen, options)


def _measure(bench: Bench, works: Sequence[Work], options: argparse.Namespace) -> int:
    """Measure works, and write all results to disk after each of them."""
    machine, measured, results = describe(ROOT), list[Measured](), Path(options.json)
    for work in works:
        measured.append(bench.measure(work))
        found = {"machine": machine, "rows": bench.scale.rows, "works": as_json(measured)}
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(found, indent=1))
        if options.markdown:
            _write_markdown(
                Path(options.markdown),
                as_markdown(measured, headline(machine, bench.scale.rows, bench.runs)),
            )
    print(as_text(measured), f"\nall figures: {results}")
    failed = any(standing.failed for one in measured for standing in one.standings.values())
    return int(failed or any(one.disagreement for one in measured))


def _write_markdown(path: Path, table: str) -> None:
    path.write_text(put_into(path.read_text("utf-8") if path.exists() else "", table), "utf-8")


def _printer() -> Say:
    """Return a function that prints a text after the seconds since now."""
    started = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - started:7.1f} s] {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    description, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("works", nargs="*", help="which to measure; all when left out")
    parser.add_argument("--list", action="store_true", help="show what can be measured")
    parser.add_argument("--rows", type=int, default=5_000_000, help="how many events there are")
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured")
    patience = (
        f"stop a contestant after so many seconds, its start and all; {PATIENCE:g} when left out"
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help=patience)
    parser.add_argument("--cores", type=int, default=2, help="how many cores contestants use")
    parser.add_argument("--folder", help="where to keep the data; else they are made each time")
    parser.add_argument("--json", default="out/compare.json", help="the results file to write")
    parser.add_argument("--markdown", metavar="FILE", help="put the table into a document")
    parser.add_argument("--profile", metavar="WORK", help="show where an epoch's time goes")
    beside = "run this library's contestants in turn with those of another checkout; 1 if slower"
    parser.add_argument("--beside", metavar="CHECKOUT", type=checkout, help=beside)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="how many pairs of such runs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
