"""deploy/ as its tests see it: the manifests, and the commands that stand anywhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import click
import yaml

from recordmill.beam_jobs.cli.main import cli
from recordmill.beam_jobs.runners.embedded import pipeline_options
from recordmill.schemas.job_file import LoadedJob, load_job
from recordmill.transforms.sources.registry import InstalledFormats

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
# A base is looked at within those that complete it.
KUSTOMIZATIONS = sorted(
    path.parent
    for path in DEPLOY.rglob("kustomization.yaml")
    if path.parent.name != "base"
)
DAY = date(2026, 11, 20)

Manifest = dict[str, Any]


def built(folder: Path) -> str:
    """What `kubectl apply -k` would send."""
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifests() -> list[Manifest]:
    """All resources of all kustomizations."""
    texts = [built(folder) for folder in KUSTOMIZATIONS]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def of_kind(kind: str, name: str = "") -> list[Manifest]:
    return [
        one
        for one in manifests()
        if one["kind"] == kind and name in ("", one["metadata"]["name"])
    ]


def pods() -> dict[str, Manifest]:
    """The pod template of everything that makes pods, by kind and name."""
    found = {}
    for one in manifests():
        spec = one.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found[f"{one['kind']} {one['metadata']['name']}"] = spec["template"]
    return found


def containers() -> dict[str, tuple[Manifest, Manifest]]:
    """Every container with its pod's spec, by kind, pod's owner and name."""
    return {
        f"{owner}: {container['name']}": (pod["spec"], container)
        for owner, pod in pods().items()
        for part in ("initContainers", "containers")
        for container in pod["spec"].get(part, [])
    }


def readmes() -> list[Path]:
    return sorted(DEPLOY.rglob("README.md"))


def shell_lines(page: Path) -> Iterator[str]:
    """The commands of a page's sh blocks, each in one line."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def our_arguments(words: list[str]) -> list[str] | None:
    """What stands behind `recordmill` in a command, however that is started.

    In `docker compose run --rm recordmill ...` it is what stands behind the service, in
    `docker run --entrypoint recordmill IMAGE ...` what stands behind the image.
    """
    if words[:2] == ["docker", "compose"] and "run" in words:
        return words[words.index("recordmill") + 1 :]
    if "--entrypoint" in words:
        assert words[words.index("--entrypoint") + 1] == "recordmill", words
        image = next(
            i for i, word in enumerate(words) if word.startswith("recordmill:")
        )
        return words[image + 1 :]
    ours = bool(words) and words[0].split("/")[-1] == "recordmill"
    return words[1:] if ours else None


def parse(arguments: list[str]) -> click.Context:
    """Parses arguments as the command does, without running it.

    Raises:
      KeyError: there is no such command.
      click.ClickException: it would refuse them.
      UsageError: Beam would.
    """
    ours, beam_args = arguments, []
    if "--" in arguments:
        place = arguments.index("--")
        ours, beam_args = arguments[:place], arguments[place + 1 :]
    pipeline_options(beam_args, workers=1)
    command: click.Command = cli
    context = click.Context(cli, info_name="recordmill")
    while isinstance(command, click.Group):
        if ours == ["--help"]:
            return context
        name, *ours = ours
        found = command.get_command(context, name)
        if found is None:
            raise KeyError(name)
        command = found
    return command.make_context(name, ours, parent=context)


def load(path: Path, **settings: str) -> LoadedJob:
    """A job file, with Beam's options checked as well."""
    read = Path.read_bytes
    job = load_job(
        path.read_bytes(),
        str(path),
        settings,
        DAY,
        lambda uri: read(Path(uri)),
        InstalledFormats(),
    )
    pipeline_options(job.options.beam_args, workers=1)
    return job


def words_of(command: str) -> list[str]:
    return shlex.split(command, comments=True)
