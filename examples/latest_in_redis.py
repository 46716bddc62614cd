"""Custom sink: the latest value of each key in a hash of Redis, each epoch once.

The workers return what they would write (``write``). After the last of them the process that
started the flow sends an epoch as one script, which Redis runs as a whole (``commit``). The script
keeps the number of the epoch beside the values. It does nothing for an epoch that Redis has, such
as that of a replay after a crash, or of a process that has lost its checkpoint to another.

A rewind (``python -m recovery rewind``) asks for values that Redis has no more, so the sink refuses
it, and says what to do. `flow.testing.connectors.check_sink` checks all this.

Start a server (``redis-server``), then run it:

    pip install redis
    python examples/latest_in_redis.py redis://localhost:6379

It prints:

    ada {"value": 2}
    bob {"value": 1}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis
from typing_extensions import override

import flow.operators as op
from flow import Dataflow, SinkError, run
from flow.connectors.sink import Guarantee, OutputContext, Sink, SinkBatch, WriteContext, to_record
from flow.testing import TestingSource

WRITE_ONCE = """
local output, rewinds, epoch = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local last = redis.call('HGET', KEYS[2], output)
if last then
  local had_rewinds, had_epoch = last:match('(%d+) (%d+)')
  had_rewinds, had_epoch = tonumber(had_rewinds), tonumber(had_epoch)
  if rewinds < had_rewinds or rewinds == had_rewinds and epoch <= had_epoch then return end
end
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[2], output, rewinds .. ' ' .. epoch)
"""
"""Script that writes the values of an epoch, and its number, unless Redis has the epoch."""


@dataclass
class RedisLatestSink(Sink[Any]):
    """Sink of pairs, or of records with a field ``key``: the latest of each key as JSON.

    Args:
        url: the server, such as ``redis://localhost:6379``; it may have a password.
        name: the name of the hash; the numbers of epochs are in the hash ``<name>:epochs``.
    """

    url: str = field(repr=False)
    name: str
    output: str = field(default="", init=False)
    rewinds: int = field(default=0, init=False)
    last_epoch: int = field(default=-1, init=False)

    guarantee = Guarantee.EXACTLY_ONCE

    @override
    def attach(self, output: OutputContext) -> None:
        self.output = output.step_id
        if output.checkpoint is not None:
            self.rewinds, self.last_epoch = output.checkpoint.rewinds, output.checkpoint.last_epoch

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        self.output = f"{run_id} {self.output}"
        with Redis.from_url(self.url, decode_responses=True) as redis:
            last = redis.hget(f"{self.name}:epochs", self.output)
        rewinds, epoch = map(int, str(last).split()) if last else (0, -1)
        if rewinds < self.rewinds and epoch > self.last_epoch:
            raise SinkError(
                f"the checkpoint was set back to epoch {self.last_epoch}, and the hash {self.name} "
                f"has values up to epoch {epoch}: delete it and {self.name}:epochs, and run the "
                "flow from the beginning of its input"
            )

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> dict[str, str]:
        latest = {}
        for batch in batches:
            for item in batch if isinstance(batch, list) else batch.to_pylist():
                record = to_record(item)
                key = record.pop("key")
                latest[key] = json.dumps(record, default=str)
        return latest

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        pairs = [part for message in messages for pair in message.items() for part in pair]
        with Redis.from_url(self.url) as redis:
            hashes = self.name, f"{self.name}:epochs"
            redis.eval(WRITE_ONCE, 2, *hashes, self.output, self.rewinds, epoch, *pairs)


def make_flow(url: str) -> Dataflow:
    """Return a flow that counts the clicks of each user, and keeps the counts in Redis."""
    graph = Dataflow("clicks")
    clicks = op.input("clicks", graph, TestingSource(["ada", "bob", "ada"]))
    counts = op.count_final("counts", clicks, lambda user: user)
    op.output("latest", counts, RedisLatestSink(url, "clicks"))
    return graph


def main(url: str) -> None:
    """Run the flow, and print the hash."""
    run(make_flow(url))
    with Redis.from_url(url, decode_responses=True) as redis:
        for user, count in sorted(redis.hgetall("clicks").items()):
            print(user, count)


if __name__ == "__main__":
    main(sys.argv[1])
