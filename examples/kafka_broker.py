"""Kafka broker of one node on this machine, for the examples.

    python examples/kafka_broker.py

Maven fetches the broker once, and the machine's Java runs it, as in the project's tests. So run the
example from the project's folder, with the packages that `python dev.py test` installs. The broker
prints its address and runs until Ctrl-C, which removes its topics.
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
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # A second Ctrl-C must not stop the removal.
        broker.remove()
    return 0


def how(servers: str) -> str:
    """Return the command of the example for this broker."""
    return f"    python examples/kafka_traffic_lights.py --fresh --servers {servers}\n"


if __name__ == "__main__":
    sys.exit(main())
