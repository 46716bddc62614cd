"""Files in ``deploy/``: they agree with the code, and with each other."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from flow.cli.run_command import _parser as parser_of_run
from flow.engine.checkpoint.lock import RENEW_SECONDS, STALE_SECONDS, Claim

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
STOP_SECONDS = 150
"""The time that a stop may take: an epoch of two minutes, and half a minute to stop Spark."""
GIB = 1 << 30


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return [(name, " ".join(rest.split())) for name, rest in pairs]


def final_stage() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile's last stage."""
    found = instructions()
    last = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def manifests(name: str) -> dict[str, Any]:
    """Return the documents of a manifest by kind."""
    documents = yaml.safe_load_all((DEPLOY / name).read_text("utf-8"))
    return {document["kind"]: document for document in documents}


def unit() -> configparser.ConfigParser:
    """Return the sections of the systemd unit."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(DEPLOY / "flow.service", "utf-8")
    return parser


def pod() -> Any:
    return manifests("kubernetes.yaml")["Deployment"]["spec"]["template"]["spec"]


def container() -> Any:
    (only,) = pod()["containers"]
    return only


def size(text: str) -> int:
    """Return the bytes of a size such as ``2g`` or ``4Gi``."""
    number, unit_of_size = re.fullmatch(r"(\d+)(g|G|Gi)", text).groups()  # type: ignore[union-attr]
    return int(number) * GIB if unit_of_size else 0


def conf(options: Any) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in options.conf)


# --- the image ---


def test_the_image_runs_as_a_user_without_rights_that_the_manifest_names() -> None:
    users = [value for name, value in final_stage() if name == "USER"]
    assert users == ["10001:10001"]
    security = pod()["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (10001, 10001)
    assert security["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_signals_reach_python_alone() -> None:
    (entry,) = (value for name, value in final_stage() if name == "ENTRYPOINT")
    # Without a shell, which would not pass signals on; tini -g would signal the JVM as well.
    assert json.loads(entry) == ["tini", "--", "python", "-m", "flow.run"]


def test_the_image_takes_only_the_files_that_it_needs() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied: set[str] = set()
    for name, value in instructions():
        assert name != "ADD"
        if name == "COPY" and not value.startswith("--from="):
            copied.update(value.split()[:-1])
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("place", ["image", "livenessProbe", "startupProbe"])
def test_health_is_the_renewal_of_the_lock(place: str) -> None:
    if place == "image":
        (text,) = (value for name, value in final_stage() if name == "HEALTHCHECK")
    else:
        text = container()[place]["exec"]["command"][-1]
    pattern, minutes = re.search(r"-name '([^']+)' -mmin -(\d+)", text).groups()  # type: ignore[union-attr]
    assert fnmatch(Claim(1, {"token": "1a2b"}).renewal, pattern)
    assert 2 * RENEW_SECONDS < int(minutes) * 60 < STALE_SECONDS


# --- Kubernetes ---


def test_one_pod_at_a_time_uses_the_checkpoint() -> None:
    spec = manifests("kubernetes.yaml")["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_a_pod_has_time_to_finish_its_epoch_and_to_wait_for_the_lock_of_a_lost_one() -> None:
    assert pod()["terminationGracePeriodSeconds"] >= STOP_SECONDS
    probe = container()["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > STALE_SECONDS + RENEW_SECONDS


def test_the_pod_runs_a_command_that_fits_its_volumes_and_limits() -> None:
    options = parser_of_run().parse_args(container()["args"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert str(options.recovery).startswith(mounts["data"] + "/")
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == manifests("kubernetes.yaml")["PersistentVolumeClaim"]["metadata"]["name"]
    assert "emptyDir" in volumes["temporary"]
    assert mounts["temporary"] == "/tmp"
    limits = container()["resources"]["limits"]
    assert options.master == f"local[{limits['cpu']}]"
    assert 2 * size(conf(options)["spark.driver.memory"]) <= size(limits["memory"])


# --- systemd ---


def test_a_stop_signals_python_alone_and_failures_that_may_pass_restart_it() -> None:
    service = unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) >= STOP_SECONDS
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"


def test_the_service_has_a_user_and_writes_to_its_own_folders() -> None:
    service = unit()["Service"]
    expected = {"User": "flow", "NoNewPrivileges": "yes", "ProtectSystem": "strict"}
    assert expected.items() <= dict(service).items()
    assert service["StateDirectory"] == "flow"
    words = shlex.split(service["ExecStart"].replace("\\\n", " "))
    assert words[1:3] == ["-m", "flow.run"]
    options = parser_of_run().parse_args(words[3:])
    assert str(options.recovery).startswith("/var/lib/flow/")
    assert 2 * size(conf(options)["spark.driver.memory"]) <= size(service["MemoryMax"])


def test_the_page_and_the_files_name_the_same_time_for_a_stop() -> None:
    page = (ROOT / "docs/how_to/deploying.md").read_text("utf-8")
    assert f"docker stop --time {STOP_SECONDS}" in page
    assert pod()["terminationGracePeriodSeconds"] == int(unit()["Service"]["TimeoutStopSec"])
    missing = [file.name for file in DEPLOY.iterdir() if f"deploy/{file.name}" not in page]
    assert missing == []
