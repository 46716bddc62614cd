"""Kafka broker of one node on this machine, for the examples.

    python examples/kafka_broker.py

It is fetched once, with Maven, and started with the machine's Java, as the project's tests do, so
it runs from the project's folder with what `python dev.py test` installs. It prints its address and
runs until Ctrl-C; what was written to it is gone then.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path


def main() -> int:
    """Run a broker until Ctrl-C."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.support.kafka import Broker, broker_program

    problem, jars = broker_program()
    if problem:
        print(problem, file=sys.stderr)
        return 1
    broker = Broker(jars)
    try:
        print(f"a broker runs; in another terminal, from the same folder:\n\n{how(broker.servers)}")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # let it be removed in peace
        broker.remove()
    return 0


def how(servers: str) -> str:
    """Say what to do with it."""
    return f"    python examples/kafka_traffic_lights.py --fresh --servers {servers}\n"


if __name__ == "__main__":
    sys.exit(main())
