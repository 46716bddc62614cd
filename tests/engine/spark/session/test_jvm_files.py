"""Temporary files of a JVM that a process starts: their place, and their removal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import java_gateway

from flow.engine.spark.session import jvm
from flow.engine.spark.session.jvm import (
    SparkLog,
    directory_for_jvm,
    has_room_for_sockets,
    own_jvm,
    started_in,
)
from flow.engine.temporary import ProcessDirectory
from tests.support.strict_python import strict_python

START = """
import json, sys
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.engine.temporary import process_directory

spark = make_session("files", SparkSettings("local[1]", json.loads(sys.argv[1])))
workers = spark.range(3).repartition(2).mapInArrow(lambda batches: batches, "id long").count()
print(json.dumps({
    "workers": workers,
    "tmpdir": spark._jvm.java.lang.System.getProperty("java.io.tmpdir"),
    "sockets": spark.conf.get("spark.python.unix.domain.socket.enabled"),
    "own": str(process_directory().spark),
    "jvm": process_directory().jvm.pid if process_directory().jvm else 0,
    "here": sorted(path.name.partition("-")[0] for path in process_directory().spark.iterdir()),
}))
"""


def start_session(tmpdir: Path, conf: dict[str, str] | None = None, **variables: str) -> Any:
    """Return the output of a session in a process of its own, once both are gone."""
    tmpdir.mkdir(parents=True)
    done = subprocess.run(
        [*strict_python(), "-c", START, json.dumps(conf or {})],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmpdir), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    paths = json.loads(done.stdout)
    while paths["jvm"] and Path(f"/proc/{paths['jvm']}").exists():
        time.sleep(0.1)
    return paths


def kinds(folder: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in folder.iterdir()}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """An empty folder with a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.extended
@pytest.mark.spark
def test_sparks_files_are_in_the_process_directory_and_removed_with_it(short_folder: Path) -> None:
    """The path of the directory is short enough for sockets."""
    paths = start_session(short_folder / "a b")
    assert paths["tmpdir"] == paths["own"]
    assert Path(paths["own"]).parents[1] == short_folder / "a b"
    assert {"blockmgr", "spark"} <= set(paths["here"])
    assert (paths["sockets"], paths["workers"]) == ("true", 3)
    assert list((short_folder / "a b").iterdir()) == []


@pytest.mark.spark
@pytest.mark.extended
def test_a_path_too_long_for_sockets_disables_them(tmp_path: Path) -> None:
    paths = start_session(tmp_path / ("long" * 40))
    assert (paths["sockets"], paths["workers"]) == ("false", 3)
    assert paths["tmpdir"] == paths["own"]


@pytest.mark.spark
@pytest.mark.extended
def test_directories_of_the_user_are_used(tmp_path: Path) -> None:
    chosen, java = tmp_path / "chosen", tmp_path / "java"
    java.mkdir()
    chosen.mkdir()
    options = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={java}"}
    paths = start_session(tmp_path / "t", {"spark.local.dir": str(chosen), **options})
    assert paths["tmpdir"] == str(java)
    assert paths["here"] == []
    assert list((tmp_path / "t").iterdir()) == []
    variable = start_session(tmp_path / "u", SPARK_LOCAL_DIRS=str(tmp_path / "of_variable"))
    assert "blockmgr" not in variable["here"]
    assert (tmp_path / "of_variable").is_dir()
    assert list((tmp_path / "u").iterdir()) == []


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_an_interrupted_start_leaves_no_jvm_and_no_files(
    short_folder: Path, seconds: float
) -> None:
    with subprocess.Popen(
        [*strict_python(), "-c", START, "{}"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(short_folder)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:
        while not list(short_folder.glob("*/spark/*")):
            time.sleep(0.01)
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert errors.endswith(b"KeyboardInterrupt\n"), errors.decode()
    assert list(short_folder.iterdir()) == []
    assert str(short_folder).encode() not in b"".join(command_lines())


def command_lines() -> Iterator[bytes]:
    """Yield the command lines of this machine's processes."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes()


def test_javas_temporary_directory_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g -Djava.io.tmpdir=/var/java")
    assert directory_for_jvm() is None
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    with started_in(None):
        assert "SPARK_SUBMIT_OPTS" not in os.environ


def test_java_options_of_users_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    directory = ProcessDirectory.make(tmp_path)
    with started_in(directory):
        wanted = f'"-Djava.io.tmpdir={directory.spark}" -Dmine=1'
        assert os.environ["SPARK_SUBMIT_OPTS"] == wanted
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"
    directory.leave()


def test_files_that_pyspark_makes_at_startup_are_there_too(tmp_path: Path) -> None:
    gateway: Any = java_gateway
    directory = ProcessDirectory.make(tmp_path)
    with started_in(directory):
        assert Path(gateway.tempfile.mkdtemp()).parent == directory.spark
        assert gateway.tempfile.mkstemp is tempfile.mkstemp
    assert gateway.tempfile is tempfile
    directory.leave()


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PySpark's context of a process without a JVM."""
    context = SimpleNamespace(_active_spark_context=None, _gateway=None, _jvm=None)
    monkeypatch.setattr(jvm, "SparkContext", context)
    return context


@pytest.mark.parametrize("moment", ["while it starts", "before its port is known"])
def test_an_interrupt_of_a_start_ends_the_jvm(
    no_jvm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)
            if moment == "while it starts":
                signal.raise_signal(signal.SIGINT)

    def start() -> None:
        with own_jvm(SparkLog()):
            no_jvm._gateway = java_gateway.Popen(["sleep", "60"])
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Started)
    with pytest.raises(KeyboardInterrupt):
        start()
    assert [jvm.returncode for jvm in started] == [-signal.SIGTERM]
    assert no_jvm._gateway is None
    assert java_gateway.Popen is Started


def test_a_jvm_without_standard_output_has_its_own_and_names_files_in_unicode(
    no_jvm: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    log = SparkLog()
    with own_jvm(log):
        start = log.size()
        java_gateway.Popen(["sh", "-c", "echo $LC_ALL"], env={**os.environ}).wait()
        assert log.written_since(start) == "C.UTF-8\n"


@pytest.mark.parametrize(("bytes_of_path", "room"), [(60, True), (61, False)])
def test_socket_paths_fit_the_limit_of_macos(
    bytes_of_path: int, room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is a dot, 36 characters and ``.sock``; with its slash and a zero at most 104 bytes."""
    monkeypatch.setattr(jvm.SparkContext, "_gateway", None)
    directory = ProcessDirectory.make(tmp_path)
    path = "/" + "é" * ((bytes_of_path - 1) // 2) + "x" * ((bytes_of_path - 1) % 2)
    monkeypatch.setattr(ProcessDirectory, "spark", Path(path))
    assert has_room_for_sockets(directory) is room
