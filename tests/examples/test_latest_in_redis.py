"""The example of a custom sink, against a server of Redis."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis, RedisError

from examples import latest_in_redis
from examples.latest_in_redis import RedisLatestSink
from flow import SinkError
from flow.connectors.sink import CheckpointContext, OutputContext
from flow.testing.connectors import check_sink
from tests.examples.test_examples import docstring_output

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of this module's own, which listens on no port."""
    if shutil.which("redis-server") is None:
        pytest.skip("no Redis server on this machine: apt-get install redis-server")
    folder = tmp_path_factory.mktemp("redis")
    options = {"port": "0", "unixsocket": "socket", "save": "", "dir": str(folder)}
    settings = "".join(f'{name} "{value}"\n' for name, value in options.items())
    command = ["redis-server", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as server:  # type: ignore[call-overload]
        server.stdin.write(settings)
        server.stdin.close()
        address = f"unix://{folder}/socket"
        until = time.monotonic() + 30
        while not is_up(address):
            assert time.monotonic() < until
            time.sleep(0.02)
        yield address
        server.terminate()


def is_up(url: str) -> bool:
    try:
        return bool(Redis.from_url(url).ping())
    except RedisError:
        return False


def test_the_sink_keeps_the_laws(url: str) -> None:
    def read(place: Path) -> list[tuple[str, int]]:
        found = Redis.from_url(url, decode_responses=True).hgetall(place.name)
        return [(key, json.loads(value)["n"]) for key, value in found.items()]  # type: ignore[union-attr]

    secret = f"{url}?password="
    check_sink(lambda place: RedisLatestSink(url, place.name), read, secrets=[secret, url])


def test_a_process_that_lost_its_checkpoint_writes_nothing(url: str) -> None:
    first, second = RedisLatestSink(url, "fenced"), RedisLatestSink(url, "fenced")
    for sink in (first, second):
        sink.attach(OutputContext("flow", "out"))
        sink.open("run", resuming=True)
    second.commit(4, [{"a": "new"}])
    first.commit(3, [{"a": "old"}])
    assert Redis.from_url(url, decode_responses=True).hgetall("fenced") == {"a": "new"}


def test_a_rewound_run_is_told_what_to_delete(url: str) -> None:
    sink = RedisLatestSink(url, "rewound")
    sink.attach(OutputContext("flow", "out"))
    sink.open("run", resuming=True)
    sink.commit(2, [{"a": "1"}])
    sink.attach(OutputContext("flow", "out", CheckpointContext("cp", "cp", 0, rewinds=1)))
    with pytest.raises(SinkError, match="rewound has values up to epoch 2: delete it and rewound:"):
        sink.open("run", resuming=True)


def test_the_page_shows_the_code_of_the_example() -> None:
    page = (ROOT / "docs/how_to/write_a_connector.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown = [block for block in blocks if ">>>" not in block]
    code = Path(latest_in_redis.__file__).read_text("utf-8")
    assert len(shown) == 2
    assert all(unindented(block) in unindented(code) for block in shown)


def unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines() if line.strip())


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.usefixtures("spark")
def test_the_example_prints_what_its_docstring_shows(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    latest_in_redis.main(url)
    assert capsys.readouterr().out.splitlines() == docstring_output("latest_in_redis")
