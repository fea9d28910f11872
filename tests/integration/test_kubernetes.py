"""deploy/kubernetes and deploy/flink: valid, careful, and of one piece."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from manifests import (
    DAY,
    DEPLOY,
    KUSTOMIZATIONS,
    built,
    containers,
    load,
    manifests,
    of_kind,
    our_arguments,
    parse,
    pods,
)
from store_servers import tool

from recordmill.schemas.errors import EXIT_STATUS, PERMANENT_KINDS, UsageError

JOBS = [folder / "job.yaml" for folder in KUSTOMIZATIONS if folder.name != "cluster"]


def check(name: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [tool(str(name)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of the newest Kubernetes, which a package has, refer to each other as files."""
    folder = tmp_path_factory.mktemp("schemas")
    found = (
        Path(tool("deploy/bin/python"))
        .parents[1]
        .glob(
            "lib/python*/site-packages/kubernetes_validate/kubernetes-json-schema/*-strict"
        )
    )
    newest = max(found, key=lambda path: [*map(int, re.findall(r"\d+", path.name))])
    for path in newest.glob("*.json"):
        text = path.read_text()
        text = text.replace("/api/_definitions", f"{folder.as_uri()}/_definitions")
        (folder / path.name).write_text(text)
    return folder


def test_a_second_job_has_names_of_its_own(tmp_path: Path) -> None:
    """A user's copy of nightly/, as the page says."""
    shutil.copytree(DEPLOY / "kubernetes" / "base", tmp_path / "base")
    second = tmp_path / "orders"
    shutil.copytree(DEPLOY / "kubernetes" / "nightly", second)
    file = second / "kustomization.yaml"
    text = file.read_text().replace("namespace: recordmill", "namespace: data")
    text = text.replace("newTag: 0.1.0", "newTag: 0.2.0").replace("30 1 *", "0 5 *")
    file.write_text(f"{text}nameSuffix: -orders\n")
    made = [*yaml.safe_load_all(built(second))]
    names = {one["kind"]: one["metadata"]["name"] for one in made}
    assert names.pop("Namespace") == "data"
    assert names.pop("ConfigMap").startswith("recordmill-job-orders-")
    assert set(names.values()) == {"recordmill-orders"}
    assert {one["metadata"].get("namespace", "data") for one in made} == {"data"}
    (cron,) = [one for one in made if one["kind"] == "CronJob"]
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert cron["spec"]["schedule"] == "0 5 * * *"
    assert pod["serviceAccountName"] == "recordmill-orders"
    assert pod["containers"][0]["image"].endswith("/recordmill:0.2.0")


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda folder: folder.name)
def test_manifests_are_valid(folder: Path, schemas: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(built(folder))
    names = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = ["kubeconform-*/kubeconform", "-strict", "-summary"]
    command += ["-schema-location", names, str(path)]
    done = check(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Valid: {len([*yaml.safe_load_all(path.read_text())])}," in done.stdout
    # Strict means that a misspelt field is one too many: it would do nothing.
    path.write_text(built(folder).replace("runAsNonRoot:", "runAsNonroot:"))
    done = check(*command)
    assert done.returncode == 1
    assert "'runAsNonroot' not allowed" in done.stdout


def test_yaml_is_tidy(tmp_path: Path) -> None:
    done = check("deploy/bin/yamllint", "--strict", "-c", DEPLOY / ".yamllint", DEPLOY)
    assert done.returncode == 0, done.stdout
    (tmp_path / "x.yaml").write_text("a: 1\na: 2\n")
    done = check(
        "deploy/bin/yamllint", "--strict", "-c", DEPLOY / ".yamllint", tmp_path
    )
    assert "duplication of key" in done.stdout


def test_there_is_something_to_look_at() -> None:
    assert {folder.name for folder in KUSTOMIZATIONS} == {
        "nightly",
        "cluster",
        "submit",
    }
    assert set(containers()) == {
        "CronJob recordmill: recordmill",
        "Deployment flink-jobmanager: jobmanager",
        "Deployment flink-jobserver: jobserver",
        "Deployment flink-taskmanager: taskmanager",
        "Deployment flink-taskmanager: worker-pool",
        "Job recordmill-events: recordmill",
    }


def test_nothing_runs_as_root_or_may_become_more() -> None:
    for name, (pod, container) in containers().items():
        outer, own = pod["securityContext"], container["securityContext"]
        both = {**outer, **own}
        assert both["runAsNonRoot"] is True, name
        assert both["runAsUser"] > 0, name
        assert both["runAsGroup"] > 0, name
        assert both["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert own["allowPrivilegeEscalation"] is False, name
        assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert own["readOnlyRootFilesystem"] is True, name
        assert not own.get("privileged"), name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        assert pod["automountServiceAccountToken"] is False, name


def test_every_namespace_enforces_it() -> None:
    spaces = {one["metadata"]["name"]: one["metadata"] for one in of_kind("Namespace")}
    used = {one["metadata"].get("namespace") for one in manifests()} - {None}
    assert set(spaces) == used
    for name, facts in spaces.items():
        labels = facts["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted", name


def test_every_container_has_limits_and_a_version() -> None:
    for name, (_, container) in containers().items():
        resources = container["resources"]
        assert {"cpu", "memory"} <= set(resources["limits"]), name
        assert {"cpu", "memory"} <= set(resources["requests"]), name
        image, _, tag = container["image"].rpartition(":")
        assert image, name
        assert tag != "latest", name
        assert tag[:1].isdigit(), f"{name}: {container['image']}"


def test_what_is_written_is_written_to_volumes_with_limits() -> None:
    for name, (pod, container) in containers().items():
        writable = {
            mount["mountPath"]: mount["name"]
            for mount in container["volumeMounts"]
            if not mount.get("readOnly")
        }
        assert "/tmp" in writable, name
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for volume in writable.values():
            assert volumes[volume]["emptyDir"]["sizeLimit"], f"{name}: {volume}"


def test_the_nightly_job_runs_once_at_a_time_and_ends() -> None:
    (cron,) = of_kind("CronJob")
    spec = cron["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["startingDeadlineSeconds"] > 0
    for job in (spec["jobTemplate"]["spec"], of_kind("Job")[0]["spec"]):
        assert job["activeDeadlineSeconds"] > 0
        assert job["template"]["spec"]["restartPolicy"] == "Never"
        # Tries after 10 s, 20 s, ... must outlast the lease of a pod that is gone.
        assert sum(10 * 2**n for n in range(job["backoffLimit"])) > 120
        (usage, _) = job["podFailurePolicy"]["rules"]
        assert usage["action"] == "FailJob"
        assert usage["onExitCodes"]["values"] == [
            EXIT_STATUS[kind] for kind in PERMANENT_KINDS
        ]


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_job_files_load(path: Path) -> None:
    job = load(path)
    # Nothing that is read is replaced: a folder or a version of its own for each run.
    assert str(DAY) in job.options.output or job.options.auto_version
    assert not job.options.overwrite
    assert "://" in job.options.output
    assert all("://" in uri for uri in job.options.inputs)


def test_containers_run_the_job_file_that_is_mounted() -> None:
    ours = {
        name: (pod, container)
        for name, (pod, container) in containers().items()
        if container["name"] == "recordmill"
    }
    maps = {one["metadata"]["name"]: one["data"] for one in of_kind("ConfigMap")}
    assert len(ours) == 2
    for name, (pod, container) in ours.items():
        arguments = our_arguments(container["command"] + container["args"])
        assert arguments is not None, name
        context = parse(arguments)
        folder, _, file = context.params["job_file"].rpartition("/")
        (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == folder]
        (volume,) = [v for v in pod["volumes"] if v["name"] == mount["name"]]
        assert file in maps[volume["configMap"]["name"]], name


def test_the_one_pod_uses_no_more_than_it_has() -> None:
    """The node's cores are not the container's."""
    (cron,) = of_kind("CronJob")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    limits = pod["containers"][0]["resources"]["limits"]
    workers = load(DEPLOY / "kubernetes" / "nightly" / "job.yaml").options.workers
    assert workers == int(limits["cpu"]) > 0


def test_a_command_that_would_be_refused_is_noticed() -> None:
    """The parser of these tests is the command's own."""
    with pytest.raises(click.ClickException, match="No such option"):
        parse(["run", "job.yaml", "--shard", "3"])
    with pytest.raises(UsageError, match="Beam has no option --flink_mastre"):
        parse(["run", "job.yaml", "--", "--flink_mastre=x"])


def allowed(name: str) -> dict[str, set[int]]:
    """Who may reach which port of a component: component -> ports."""
    (policy,) = of_kind("NetworkPolicy", name)
    reached: dict[str, set[int]] = {}
    for rule in policy["spec"]["ingress"]:
        for peer in rule["from"]:
            labels = peer["podSelector"]["matchLabels"]
            who = labels.get("app.kubernetes.io/component", "submitter")
            ports = {port["port"] for port in rule["ports"]}
            reached.setdefault(who, set()).update(ports)
    return reached


def test_nobody_reaches_a_worker_pool() -> None:
    """It runs whatever it is told; the TaskManager beside it needs no network."""
    (everyone,) = of_kind("NetworkPolicy", "default-deny")
    assert everyone["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [],
    }
    reached = allowed("flink-taskmanager")
    assert reached == {"jobmanager": {6122}, "taskmanager": {6121, 6122}}
    (service_ports,) = [
        container["args"]
        for name, (_, container) in containers().items()
        if name.endswith("worker-pool")
    ]
    assert service_ports == ["--service_port=50000"]


def test_what_pods_of_the_cluster_may_reach() -> None:
    """Each other, names and storage; the launcher the collector that it is told of."""
    path = DEPLOY / "flink" / "cluster" / "networkpolicy.yaml"
    policies = list(yaml.safe_load_all(path.read_text()))
    (policy,) = [one for one in policies if "Egress" in one["spec"]["policyTypes"]]
    assert policy["spec"]["podSelector"] == {}
    inside, names, storage = policy["spec"]["egress"]
    assert inside == {"to": [{"podSelector": {}}]}
    assert [port["port"] for port in names["ports"]] == [53, 53]
    assert [port["port"] for port in storage["ports"]] == [443]
    (launcher,) = of_kind("NetworkPolicy", "recordmill-events")
    (collector,) = launcher["spec"]["egress"]
    (_, container) = containers()["Job recordmill-events: recordmill"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    port = variables["OTEL_EXPORTER_OTLP_ENDPOINT"].rpartition(":")[2]
    assert [str(each["port"]) for each in collector["ports"]] == [port]


def test_the_one_pod_reaches_the_pushgateway() -> None:
    (policy,) = of_kind("NetworkPolicy", "recordmill")
    (_, container) = containers()["CronJob recordmill: recordmill"]
    arguments = our_arguments(container["command"] + container["args"])
    assert arguments is not None
    push, _, group = str(parse(arguments).params["metrics_push"]).partition("/metrics/")
    # A job file that cannot be read does not tell the name.
    name = load(DEPLOY / "kubernetes" / "nightly" / "job.yaml").job.name
    assert group == f"job/recordmill/dataset/{name}"
    rules = [rule["ports"] for rule in policy["spec"]["egress"]]
    assert push.rpartition(":")[2] in [
        str(each["port"]) for ports in rules for each in ports
    ]


def test_the_parts_of_the_cluster_find_each_other() -> None:
    config = yaml.safe_load((DEPLOY / "flink" / "cluster" / "config.yaml").read_text())
    ports = {config["jobmanager"]["rpc"]["port"], config["blob"]["server"]["port"]}
    assert allowed("flink-jobmanager") == {
        "taskmanager": ports,
        "jobserver": {config["rest"]["port"], config["blob"]["server"]["port"]},
    }
    services = {
        one["metadata"]["name"]: {port["port"] for port in one["spec"]["ports"]}
        for one in of_kind("Service")
    }
    address = config["jobmanager"]["rpc"]["address"]
    assert services[address] == ports | {config["rest"]["port"]}
    assert config["rest"]["address"] == address
    server = containers()["Deployment flink-jobserver: jobserver"][1]
    assert f"--flink-master={address}:{config['rest']['port']}" in server["args"]
    # What the job is told, and what listens there.
    job = load(DEPLOY / "flink" / "submit" / "job.yaml")
    given = dict(arg.lstrip("-").split("=", 1) for arg in job.options.beam_args)
    for option, flag in (("job_endpoint", "job"), ("artifact_endpoint", "artifact")):
        host, port = given[option].split(":")
        assert int(port) in services[host]
        assert f"--{flag}-port={port}" in server["args"]
        assert int(port) in allowed("flink-jobserver")["submitter"]
    assert given["environment_config"] == "localhost:50000"
    slots = config["taskmanager"]["numberOfTaskSlots"]
    (managers,) = of_kind("Deployment", "flink-taskmanager")
    assert int(given["parallelism"]) == slots * managers["spec"]["replicas"]
    assert int(given["sdk_worker_parallelism"]) == slots


def test_selectors_meet_the_pods() -> None:
    labels = [pod["metadata"]["labels"] for pod in pods().values()]
    wanted = [one["spec"]["selector"] for one in of_kind("Service")]
    wanted += [
        one["spec"]["podSelector"].get("matchLabels", {})
        for one in of_kind("NetworkPolicy")
    ]
    for selector in wanted:
        assert any(selector.items() <= own.items() for own in labels), selector


def test_versions_belong_together() -> None:
    """Flink's minor version is in the job server's name; Beam's is the lock's."""
    images = {
        container["image"].rpartition(":")[0]: container["image"].rpartition(":")[2]
        for _, container in containers().values()
    }
    (server,) = [name for name in images if name.endswith("_job_server")]
    minor = ".".join(images["flink"].split(".")[:2])
    assert server == f"apache/beam_flink{minor}_job_server"
    lock = (DEPLOY / "requirements.lock").read_text()
    assert f"\napache-beam=={images[server]} " in lock
