"""deploy/: the image, the Flex Template, and every command that its pages show.

test_image.py builds the image and runs it, by `make image`, as that takes minutes.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from dataflow_launcher import command_line, parameters_of
from google.cloud.dataflow_v1beta3 import TemplateMetadata
from google.protobuf import json_format
from manifests import (
    DEPLOY,
    ROOT,
    load,
    our_arguments,
    parse,
    readmes,
    shell_lines,
    words_of,
)
from store_servers import tool

from recordmill.beam_jobs.cli.job_commands import convert, run_command
from recordmill.beam_jobs.cli.options import all_commands
from recordmill.schemas.storage_options import parse_storage_options

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
METADATA: dict[str, Any] = json.loads((DEPLOY / "dataflow/metadata.json").read_text())
PARAMETERS = {one["name"]: one for one in METADATA["parameters"]}
OURS = {"job_file", "source", "inputs", "output"}
BEAMS = {"sdk_container_image", "sdk_location"}
# Of the launcher's machine and its standard output, which are gone when it ends.
NOT_IN_THE_TEMPLATE = {"json", "metrics_file", "metrics_push"}
# Given in a way that the command takes: one value for each kind of parameter.
VALUES = {
    "channels": "3",
    "table_rows": "object",
    "set": "date=2026-11-20 shards=3",
    "inputs": "gs://b/raw/*.csv 'gs://b/with a space.csv'",
    "storage_option": "project=p input:token=anon",
    "exclude": "thumbs 'with a space.csv'",
    "dataset_version": "auto",
    "split_from": "none",  # text for images, a choice for others
    "split": "train=0.9 test=0.1",
    "shard_size": "64MiB",
    "max_rejects": "0.5%",
    "name": "users",
}


def test_the_dockerfile_is_sound(tmp_path: Path) -> None:
    done = run(tool("deploy/bin/hadolint"), DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    worse = tmp_path / "Dockerfile"
    worse.write_text("FROM debian:latest\nRUN cd /x && sudo make\n")
    assert run(tool("deploy/bin/hadolint"), worse).returncode != 0


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_bases_are_pinned_and_those_of_the_lock() -> None:
    bases = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))
    used = re.findall(r"^FROM \$\{(\w+)\}", DOCKERFILE, re.MULTILINE)
    assert set(used) == set(bases) == {*("BEAM", "COMPILER", "LAUNCHER", "PYTHON")}
    assert len(re.findall(r"^FROM", DOCKERFILE, re.MULTILINE)) == len(used)
    for image in bases.values():
        assert re.fullmatch(r"[^:]+:\d+[\w.-]*\d[\w.-]*", image), image
    beam = re.search(
        r"^apache-beam==(\S+)", lock("deploy/requirements.lock"), re.MULTILINE
    )
    assert beam
    minor = ".".join(bases["PYTHON"].partition(":")[2].split(".")[:2])
    assert bases["BEAM"] == f"apache/beam_python{minor}_sdk:{beam[1]}"
    assert bases["PYTHON"] == bases["COMPILER"].replace("-bookworm", "-slim-bookworm")
    assert f"/python{minor.replace('.', '')}-template" in bases["LAUNCHER"]


def test_the_image_is_not_roots_and_installs_the_locks_alone() -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert users == [("10001", "10001")]
    # Beam's boot program asks who it is, and crashes in some builds if nobody knows.
    assert "echo 'recordmill:x:10001:10001:" in DOCKERFILE
    last = DOCKERFILE.index("USER ")
    assert not re.search(r"^(RUN|COPY)", DOCKERFILE[last:], re.MULTILINE)
    installs = re.findall(r"pip install ([^&\n]*)", DOCKERFILE.replace("\\\n", " "))
    assert len(installs) == 4
    for arguments in installs:
        words = arguments.split()
        assert "--no-deps" in words
        assert "--require-hashes" in words or "/wheels/*.whl" in words
    assert "pip check" in DOCKERFILE
    assert 'ENTRYPOINT ["/opt/apache/beam/boot"]' in DOCKERFILE
    # They would install anew at every start of a job.
    assert "SETUP_FILE" not in DOCKERFILE
    assert "REQUIREMENTS_FILE" not in DOCKERFILE


def test_all_that_is_copied_exists_and_is_not_ignored() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    for source in " ".join(copies).split():
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) for pattern in kept), source
    assert "FLEX_TEMPLATE_PYTHON_PY_FILE=/template/main.py" in DOCKERFILE
    assert "COPY deploy/dataflow/main.py /template/main.py" in DOCKERFILE


def lock(name: str) -> str:
    return (ROOT / name).read_text()


def pins(name: str) -> set[str]:
    return set(re.findall(r"^([a-z][\w.-]*==\S+)", lock(name), re.MULTILINE))


def test_the_image_has_what_was_tested() -> None:
    tested = pins("requirements-all.lock")
    assert pins("requirements.lock") < pins("deploy/requirements.lock") < tested
    assert pins("deploy/requirements-build.lock") < tested
    assert not {"pytest", "moto", "mypy"} & {
        pin.partition("==")[0] for pin in pins("deploy/requirements.lock")
    }


LOCKS = [
    *ROOT.glob("*.lock"),
    *DEPLOY.rglob("*.lock"),
    *(ROOT / "tests").rglob("*.lock"),
]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_locks_name_no_address(path: Path) -> None:
    text = path.read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text


def test_dataflow_takes_the_metadata() -> None:
    form = TemplateMetadata.pb(TemplateMetadata())
    taken = json_format.ParseDict(METADATA, form)
    assert len(taken.parameters) == len(PARAMETERS) > 20
    wrong = {**METADATA, "parameters": [{"name": "x", "helptext": "y"}]}
    with pytest.raises(json_format.ParseError, match="helptext"):
        json_format.ParseDict(wrong, TemplateMetadata.pb(TemplateMetadata()))


def test_the_template_offers_what_the_command_does() -> None:
    commands = [run_command, *all_commands(convert).values()]
    known = {name for command in commands for name in parameters_of(command)}
    assert set(PARAMETERS) == (known - NOT_IN_THE_TEMPLATE) | OURS | BEAMS


def test_parameters_say_what_the_options_do() -> None:
    options: dict[str, list[click.Option]] = defaultdict(list)
    for command in all_commands(convert).values():
        for name, option in parameters_of(command).items():
            options[name].append(option)
    for name, parameter in PARAMETERS.items():
        # The console sends defaults along: one of `convert` would spoil a job file.
        assert "defaultValue" not in parameter, name
        assert parameter["isOptional"] is True, name
        assert parameter["label"], name
        assert parameter["helpText"].endswith("."), name
        choices = [one["value"] for one in parameter.get("enumOptions", [])]
        same = options.get(name, [])
        kinds = [option.type for option in same]
        if not same:
            assert name in OURS | BEAMS | {"set"}, name
        elif all(isinstance(kind, click.Choice) for kind in kinds):
            told = {tuple(vars(kind)["choices"]) for kind in kinds}
            # Formats that differ share a field for any text.
            assert {tuple(choices)} == told or (len(told) > 1 and not choices), name
        elif same[0].is_flag:
            assert choices == ["true", "false"], name
        if name in VALUES and "regexes" in parameter:
            assert re.fullmatch(parameter["regexes"][0], VALUES[name]), name
    sources = [one["value"] for one in PARAMETERS["source"]["enumOptions"]]
    assert sorted(sources) == sorted(all_commands(convert))
    named = METADATA["description"].partition("Formats: ")[2].strip(".").split(", ")
    assert named == sorted(all_commands(convert))


def value_of(name: str) -> str:
    parameter = PARAMETERS[name]
    if name in VALUES:
        return VALUES[name]
    if "enumOptions" in parameter:
        return str(parameter["enumOptions"][-1]["value"])
    return "3" if parameter["paramType"] == "NUMBER" else f"gs://b/{name}"


@pytest.mark.parametrize("mode", ["run", *sorted(all_commands(convert))])
def test_every_parameter_reaches_the_command(mode: str) -> None:
    command = run_command if mode == "run" else all_commands(convert)[mode]
    names = set(parameters_of(command)) - NOT_IN_THE_TEMPLATE | BEAMS | {"output"}
    given = {name: value_of(name) for name in sorted(names)}
    if mode == "run":
        given["job_file"] = "gs://b/job.yaml"
    else:
        given |= {"source": mode, "inputs": VALUES["inputs"]}
    # As the launcher does, with its own of Beam's.
    argv = [f"--{name}={value}" for name, value in given.items()]
    launchers = ["--runner=DataflowRunner", "--template_location=gs://b/job_object"]
    arguments = command_line([*argv, *launchers])
    context = parse(arguments)
    taken = arguments[arguments.index("--") + 1 :]
    assert set(launchers) <= set(taken)
    assert {f"--{name}={given[name]}" for name in BEAMS} <= set(taken)
    options = {option.name: option for option in command.params}
    for name, option in parameters_of(command).items():
        if name in NOT_IN_THE_TEMPLATE:
            continue
        value = context.params[option.name or ""]
        assert options[option.name]
        if name == "split":
            assert value == ("train=0.9", "test=0.1")
        elif name == "storage_option":
            assert value == parse_storage_options(["project=p", "input:token=anon"])
        elif name == "exclude":
            assert value == ("thumbs", "with a space.csv")
        elif name == "set":
            assert value == ("date=2026-11-20", "shards=3")
        elif option.is_flag:
            # The last of true and false; `run` then keeps what the file says.
            assert not value
        else:
            assert str(value) == given[name], name
    if mode == "run":
        assert context.params["job_file"] == "gs://b/job.yaml"
    else:
        assert context.params["paths"] == (
            "gs://b/raw/*.csv",
            "gs://b/with a space.csv",
            "gs://b/output",
        )


def every_command() -> list[tuple[str, str]]:
    """(page, command) of all that stands in a README and runs recordmill."""
    return [
        (str(page.parent.relative_to(ROOT)), line)
        for page in readmes()
        for line in shell_lines(page)
        if our_arguments(words_of(line)) is not None
    ]


@pytest.mark.parametrize(("page", "line"), every_command())
def test_commands_of_the_pages_parse(page: str, line: str) -> None:
    arguments = our_arguments(words_of(line))
    assert arguments is not None
    context = parse(arguments)
    file = context.params.get("job_file", "")
    if file.startswith("deploy/"):
        assert (ROOT / file).is_file()


def test_pages_show_commands() -> None:
    pages = {page for page, _ in every_command()}
    targets = {str(path.parent.relative_to(ROOT)) for path in readmes()}
    assert targets - pages == set()
    assert {f"deploy/{path.name}" for path in DEPLOY.iterdir() if path.is_dir()} | {
        "deploy"
    } == targets


@pytest.mark.parametrize("page", readmes(), ids=lambda page: page.parent.name)
def test_pages_name_what_exists(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"(?<![\w/])deploy/[\w@./-]*\w", text):
        assert (ROOT / path).exists(), path


def test_parameters_of_the_pages_are_the_templates() -> None:
    lines = list(shell_lines(DEPLOY / "dataflow" / "README.md"))
    launches = [words_of(line) for line in lines if "flex-template run" in line]
    assert len(launches) == 2
    for words in launches:
        given = [after for word, after in pairwise(words) if word == "--parameters"]
        assert {one.partition("=")[0] for one in given} <= set(PARAMETERS)
        parse(command_line([f"--{one}" for one in given]))


JOB_FILES = [
    path
    for path in sorted(DEPLOY.rglob("*.yaml"))
    if path.read_text().partition("source: ")[1]
]


def test_these_are_the_job_files() -> None:
    assert {str(path.relative_to(DEPLOY)) for path in JOB_FILES} == {
        "airflow/events.yaml",
        "airflow/local.yaml",
        "flink/submit/job.yaml",
        "kubernetes/nightly/job.yaml",
        "systemd/users.yaml",
    }


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_job_files_load(path: Path) -> None:
    assert load(path).options.output


def test_shell_of_the_project_is_sound(tmp_path: Path) -> None:
    scripts = [ROOT / "tests" / "demo.sh", ROOT / ".ci" / "run"]
    done = run(tool("deploy/bin/shellcheck"), *scripts)
    assert done.returncode == 0, done.stdout
    for page in readmes():  # what pages show is shell, too
        script = tmp_path / "page.sh"
        script.write_text("#!/bin/sh\n" + "\n".join(shell_lines(page)) + "\n")
        done = run(tool("deploy/bin/shellcheck"), script)
        assert done.returncode == 0, f"{page}: {done.stdout}"
