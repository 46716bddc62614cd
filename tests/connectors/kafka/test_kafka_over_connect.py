"""A flow from Kafka to Kafka over Spark Connect, whose program and outputs are killed.

``python -m tests.connectors.kafka.test_kafka_over_connect REMOTE SERVERS SOURCE SINK HOME EPOCH``
runs the flow until its program is to die, after the report of an epoch.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
from flow import Dataflow, EngineError, EpochReport, attach, run
from flow.connectors.kafka import KafkaSink, KafkaSource
from recovery import RecoveryConfig
from tests.connectors.kafka.test_kafka_flows import orders
from tests.connectors.kafka.test_sink_on_spark import by_key
from tests.support.connect import connect_server
from tests.support.kafka import Broker
from tests.support.one_stream import running_total

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extended, pytest.mark.timeout(290)]

ROOT = Path(__file__).parents[3]
SECRET = "s3cr3t-s3cr3t"
EPOCHS, SIZE = 6, 30
DEATH_OF_PROGRAM, DEATH_OF_OUTPUTS, NEVER = 0, 3, -1


@dataclass(frozen=True)
class StruckSink(KafkaSink):
    """Sink whose process dies once, when an epoch is in Kafka and not yet in the checkpoint.

    Args:
        mark: a file of the process that has died.
    """

    mark: str = ""

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        super().commit(epoch, messages)
        if epoch == DEATH_OF_OUTPUTS and not os.path.exists(self.mark):
            Path(self.mark).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


def totals(servers: str, source: str, sink: str, home: str) -> Dataflow:
    """Return the flow of running totals of the users of orders."""
    secret = {"sasl.password": SECRET}
    flow = Dataflow("totals")
    schema = {"user": pa.string(), "number": pa.int64()}
    options: dict[str, Any] = {"properties": secret, "max_records_per_epoch": SIZE}
    read = KafkaSource(servers, source, value="json", schema=schema, **options)
    keyed = op.key_on("by_user", op.input("orders", flow, read), "user")
    numbers = op.map_value("numbers", keyed, lambda order: order["number"])
    total = op.stateful_map("total", numbers, running_total)
    op.output("out", total, StruckSink(servers, sink, properties=secret, mark=f"{home}/mark"))
    return flow


def main() -> None:
    """Run the flow to its end, or to the death of this program."""
    remote, *where, death = sys.argv[1:]
    builder: Any = SparkSession.builder

    def die(report: EpochReport) -> None:
        if report.epoch == int(death):
            os.kill(os.getpid(), signal.SIGKILL)

    run(
        totals(*where),
        spark=builder.remote(remote).getOrCreate(),
        recovery=RecoveryConfig(f"{where[-1]}/checkpoint"),
        trigger="available",
        on_epoch=die,
    )


#  epoch     0                1 2   3                3       4 5
#            program killed         outputs killed   again
def test_results_are_written_once_over_kills_of_program_and_outputs(
    broker: Broker, tmp_path: Path
) -> None:
    source, sink = broker.topic(partitions=2), broker.topic(partitions=2)
    broker.produce(source, orders(range(EPOCHS * SIZE), 2))
    where = [broker.servers, source, sink, str(tmp_path)]

    def run_until(death: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", __name__, server.url, *where, str(death)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    with connect_server(tmp_path / "server") as server:
        killed = run_until(DEATH_OF_PROGRAM)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
        session = server.session()
        with pytest.raises(EngineError, match="the streaming query ended on the server before"):
            attach(totals(*where), RecoveryConfig(tmp_path / "checkpoint"), spark=session)
        session.stop()
        assert (tmp_path / "mark").exists()
        ended = run_until(NEVER)
        assert ended.returncode == 0, ended.stderr[-2_000:]
    assert by_key(broker, sink) == {
        f"u{user}".encode(): list(itertools.accumulate(range(user, EPOCHS * SIZE, 3)))
        for user in range(3)
    }
    texts = [killed.stdout, killed.stderr, ended.stdout, ended.stderr]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    contents = [*(text.encode() for text in texts), *(path.read_bytes() for path in files)]
    assert not any(SECRET.encode() in content for content in contents)


if __name__ == "__main__":
    main()
