"""A run of a flow in a process to be killed: ``python -m tests.faults.child HOME``."""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flow import EpochReport, FlowError, run
from recovery import RecoveryConfig
from tests.faults.flows import FLOWS
from tests.faults.shop import Size
from tests.faults.striking import Fault, Whom


def main() -> None:
    """Run the flow once, to its end or to its death."""
    faulthandler.register(signal.SIGUSR1)
    options = _parser().parse_args()
    home = options.home
    fault = Fault(options.point, options.at, Whom(options.whom), home, options.times)

    def report(done: EpochReport) -> None:
        print(f"epoch {done.epoch}", flush=True)  # noqa: T201  (the parent reads it)
        fault.strike("after outputs", done.epoch)

    flow = FLOWS[options.flow].make_flow(home, Size(options.hours, options.epochs), fault)
    on_what: dict[str, Any] = {
        "master": options.master,
        "conf": dict(pair.split("=", 1) for pair in options.conf),
    }
    if options.remote:
        on_what = {"spark": SparkSession.builder.remote(options.remote).getOrCreate()}
    try:
        summary = run(
            flow,
            recovery=RecoveryConfig(
                options.checkpoint or home / "checkpoint", keep_epochs=options.keep_epochs
            ),
            **on_what,
            drain=options.drain,
            trigger=options.trigger,
            system_time=options.now,
            shards=8,
            partitions=2,
            on_epoch=report,
        )
    except FlowError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(f"{'stopped' if summary.stopped else 'done'} after {summary.epochs} epochs")  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--flow", choices=FLOWS, default="shop")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--hours", type=float, default=Size.hours)
    parser.add_argument("--epochs", type=int, default=Size.epochs)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--remote", help="the address of a server of Spark Connect")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--drain", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--trigger")
    parser.add_argument("--keep-epochs", type=int, default=RecoveryConfig.keep_epochs)
    parser.add_argument("--now", help="where system time stands still")
    parser.add_argument("--point", default="", help="where a fault strikes")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--whom", default=Whom.ALL.value)
    parser.add_argument("--times", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
