"""deploy/flink/compose.yaml, read by the parser that Docker itself uses.

No container is started: what Docker and the images do with it is not tested.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import DEPLOY, containers, load, parse, shell_lines, words_of
from store_servers import tool

FILE = DEPLOY / "flink" / "compose.yaml"


def read_by_docker(
    file: Path, *flags: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("compose-go-*/cmd"), *flags, str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=file.parent,  # as Docker does, names begin where the file is
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    done = read_by_docker(FILE, COMPOSE_PROFILES="command")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("mem_limit: 2g", "mem_limitt: 2g"),
        ("127.0.0.1:8081:8081", "127.0.0.1:8081:web"),
        ("condition: service_healthy", "condition: well"),
    ],
)
def test_an_error_would_be_noticed(tmp_path: Path, right: str, wrong: str) -> None:
    text = FILE.read_text()
    assert right in text
    (tmp_path / "compose.yaml").write_text(text.replace(right, wrong))
    assert read_by_docker(tmp_path / "compose.yaml").returncode != 0


def test_its_parts_are_those_of_the_cluster(services: dict[str, Any]) -> None:
    """Images, commands and limits of memory; the service names are Flink's addresses."""
    pods = {name.rpartition(": ")[2]: one for name, (_, one) in containers().items()}
    for service, name in {
        "flink-jobmanager": "jobmanager",
        "flink-taskmanager": "taskmanager",
        "flink-jobserver": "jobserver",
        "worker-pool": "worker-pool",
    }.items():
        here, there = services[service], pods[name]
        assert here["image"] == there["image"].removeprefix("registry.example/")
        assert here.get("entrypoint") == there.get("command")
        if service != "flink-taskmanager":  # which has the address of a pod there
            assert here.get("command") == there.get("args")
        limit = there["resources"]["limits"]["memory"]
        assert here["mem_limit"] == limit.lower().removesuffix("i")
    config = yaml.safe_load((FILE.parent / "cluster" / "config.yaml").read_text())
    assert config["jobmanager"]["rpc"]["address"] in services
    for name in ("flink-jobmanager", "flink-taskmanager"):
        (mount,) = services[name]["volumes"]
        assert mount["source"] == str(FILE.parent / "cluster" / "config.yaml")
        assert mount["read_only"] is True


def test_services_name_services(services: dict[str, Any]) -> None:
    """The reader does not see to it; Docker would."""
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        kind, _, name = service.get("network_mode", "service:worker-pool").partition(
            ":"
        )
        assert kind == "service"
        assert name in services


def test_only_this_machine_reaches_it(services: dict[str, Any]) -> None:
    ports = [port for one in services.values() for port in one.get("ports", ())]
    assert [port["host_ip"] for port in ports] == ["127.0.0.1"]
    # The worker pool runs whatever it is told: it is in the TaskManager's network alone.
    assert services["worker-pool"]["network_mode"] == "service:flink-taskmanager"
    assert not services["flink-taskmanager"].get("ports")


def test_the_page_submits_to_it(services: dict[str, Any]) -> None:
    (line,) = [
        one for one in shell_lines(FILE.parent / "README.md") if " run --rm " in one
    ]
    words = words_of(line)
    arguments = words[words.index("recordmill") + 1 :]
    parse(arguments)
    assert services["recordmill"]["entrypoint"] == ["recordmill"]
    given = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    shown = load(FILE.parent / "submit" / "job.yaml").options.beam_args
    there = dict(word.lstrip("-").split("=", 1) for word in shown)
    assert given.pop("parallelism") == "2"  # the slots of one TaskManager
    assert given == {name: there[name] for name in given}
    # All that is named is in the folder that workers and command share.
    for name in ("worker-pool", "recordmill"):
        (mount,) = services[name]["volumes"]
        assert mount["target"] == "/data"
        assert mount["source"] == str(FILE.parent / "data")
    assert all(word.startswith("/data/") for word in arguments[2:4])
