"""Count the instructions a row of the columnar kernels, and compare them with their budgets.

::

    python benchmarks/kernels/run.py [KERNEL ...]            # needs Valgrind
    python benchmarks/kernels/run.py --write [KERNEL ...]    # and renew the budgets
    python benchmarks/kernels/run.py --time [KERNEL ...]     # million rows a second, no Valgrind
    python benchmarks/kernels/run.py --beside CHECKOUT [KERNEL ...]

The command exits with 1 if a kernel takes more than twice its budget; with ``--beside``, if one
takes over 3 % more instructions than in the other checkout.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.kernels.budgets import FILE, MOST_BESIDE, Budgets, Setting
from benchmarks.kernels.counting import ROOT, CountingError, count
from benchmarks.kernels.kernels import Kernel, all_kernels
from benchmarks.windows.beside import checkout

REPEATS = 7


def main(arguments: Sequence[str] | None = None) -> int:
    """Count or time kernels, and print the table."""
    options = _parser().parse_args(arguments)
    known = all_kernels()
    unknown = [name for name in options.kernels if name not in known]
    if unknown:
        names = ", ".join(known)
        print(f"there is no kernel called {', '.join(unknown)}: they are {names}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.kernels or known]
    if options.time:
        print(times(chosen))
        return 0
    try:
        if options.beside:
            return compare(chosen, options.beside)
        counts = count(chosen)
    except CountingError as error:
        print(error, file=sys.stderr)
        return 2
    budgets = Budgets.read()
    print(table(chosen, counts, budgets))
    if options.write:
        known_budgets = {
            name: budgets.by_kernel[name] for name in known if name in budgets.by_kernel
        }
        Budgets(Setting.here(), {**known_budgets, **counts}).write()
        return 0
    problems = list(filter(None, (budgets.problem(*one) for one in counts.items())))
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


def compare(kernels: Sequence[Kernel], other: Path) -> int:
    """Count kernels here and in another checkout; 1 if one takes more than `MOST_BESIDE` times."""
    # Every kernel has a budget.
    there = Budgets.read(other / FILE.relative_to(ROOT)).by_kernel
    both = [one for one in kernels if one.name in there]
    counts, other_counts = count(both), count(both, other)
    print(beside(counts, other_counts))
    for name in (one.name for one in kernels if one not in both):
        print(f"{name} is not in {other}")
    return int(any(counts[name] > MOST_BESIDE * other_counts[name] for name in counts))


def beside(here: Mapping[str, float], there: Mapping[str, float]) -> str:
    """Return a table of instructions a row in two checkouts, as text."""
    lines = [f"{'kernel':22} {'here':>12} {'there':>12} {'ratio':>6}"]
    for name, counted in here.items():
        ratio = counted / there[name]
        line = f"{name:22} {counted:>12,.1f} {there[name]:>12,.1f} {ratio:>6.3f}"
        lines.append(f"{line} MORE" if ratio > MOST_BESIDE else line)
    return "\n".join(lines)


def table(kernels: Sequence[Kernel], counts: Mapping[str, float], budgets: Budgets) -> str:
    """Return a table of instructions a row and budgets, as text."""
    lines = [f"{'kernel':22} {'rows':>8} {'instructions a row':>20} {'budget':>10} {'ratio':>6}"]
    for one in kernels:
        counted, budget = counts[one.name], budgets.by_kernel.get(one.name)
        ratio = budgets.ratio(one.name, counted)
        lines.append(
            f"{one.name:22} {one.rows:>8,} {counted:>20,.1f} "
            f"{'' if budget is None else f'{budget:,.1f}':>10} "
            f"{'' if ratio is None else f'{ratio:.2f}':>6}"
        )
    return "\n".join(line.rstrip() for line in lines)


def times(kernels: Sequence[Kernel]) -> str:
    """Return a table of million rows a second, the best of several runs, as text."""
    lines = [f"{'kernel':22} {'rows':>8} {'million rows a second':>22}"]
    lines += [
        f"{one.name:22} {one.rows:>8,} {one.rows / seconds(one) / 1e6:>22,.2f}" for one in kernels
    ]
    return "\n".join(lines)


def seconds(kernel: Kernel) -> float:
    """Return the least time of several runs of a kernel's work."""
    all_seconds = []
    for _ in range(REPEATS):
        work = kernel.prepare()
        gc.collect()
        began = time.perf_counter()
        work()
        all_seconds.append(time.perf_counter() - began)
    return min(all_seconds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="some of them; else all")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--time", action="store_true", help="measure time instead, without Valgrind")
    how.add_argument("--write", action="store_true", help="renew the budgets")
    beside = "count in another checkout too, and compare"
    how.add_argument("--beside", metavar="CHECKOUT", type=checkout, help=beside)
    return parser


if __name__ == "__main__":
    sys.exit(main())
