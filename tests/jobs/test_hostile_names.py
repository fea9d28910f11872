"""Names in listings, manifests and other files lead nowhere outside of the dataset."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from job_tools import IRIS, contents, recordmill

from recordmill import read_rows
from recordmill.schemas.errors import OutputError, RecordmillError
from recordmill.schemas.names import UnsafeNameError
from recordmill.transforms.commit.versions import read_latest, unfinished_runs
from recordmill.transforms.dataset.files import open_file
from recordmill.transforms.storage import LocalStore, open_store
from recordmill.transforms.tasks.workspace import Workspace

UNSAFE = ["../outside", "/etc/passwd", "a/../../outside", "a\\b", "", "x/y"]


@pytest.fixture
def bucket() -> str:
    return f"memory://{uuid.uuid4().hex}"


def put_key(url: str, data: bytes = b"x") -> None:
    """Puts an object under this very key, as any program with access to a bucket can."""
    system = fsspec.filesystem("memory")
    system.pipe_file("/placeholder", data)
    system.store[url.removeprefix("memory:/")] = system.store.pop("/placeholder")


@pytest.mark.parametrize("key", ["..", "../..", "../other", "a/../..", "."])
def test_a_key_of_an_unfinished_version(tmp_path: Path, bucket: str, key: str) -> None:
    """It made rmtree(scratch/..)."""
    folder = tmp_path / "mine" / "scratch"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent, tmp_path):
        (place / "keep").write_text("mine")
    before = contents(tmp_path)
    put_key(f"{bucket}/out/1.0.0/.recordmill/{key}/x")
    options = ["--dataset-version", "auto", "--scratch", folder]
    ran = recordmill("convert", "csv", IRIS, f"{bucket}/out", *options)
    assert {name: contents(tmp_path).get(name) for name in before} == before
    if ran.status:
        assert ran.status == 73
        assert ran.err.startswith("Error: ")
        assert "expected a relative path" in ran.err


def test_only_runs_are_unfinished_runs(bucket: str) -> None:
    for name in ("..", "notes", "0123456789abcdef", "0123456789abcdef0", "lock"):
        put_key(f"{bucket}/out/1.0.0/.recordmill/{name}/x")
    store = open_store(f"{bucket}/out")
    assert unfinished_runs(store, "1.0.0") == ["0123456789abcdef"]


@pytest.fixture
def copy(iris: Path, tmp_path: Path) -> Path:
    """A dataset beside a file with a secret, which its manifest can be made to name."""
    (tmp_path / "outside").write_bytes(b"a secret")
    return shutil.copytree(iris, tmp_path / "out" / "iris")


def name_in_manifest(folder: Path, name: str) -> None:
    path = folder / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    manifest["splits"]["train"]["shards"][0]["file"] = name
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize(
    "command", [["verify"], ["verify", "--quick"], ["verify", "--deep"], ["inspect"]]
)
def test_no_command_opens_what_a_manifest_names_elsewhere(
    copy: Path, name: str, command: list[str]
) -> None:
    name_in_manifest(copy, name)
    ran = recordmill(*command, copy)
    assert ran.status == 73
    assert f"{copy}/manifest.json: " in ran.err
    assert "secret" not in ran.out + ran.err.replace(str(copy), "")


@pytest.mark.parametrize("name", UNSAFE)
def test_no_reader_opens_it_either(copy: Path, name: str) -> None:
    name_in_manifest(copy, name)
    with pytest.raises(RecordmillError, match=r"manifest\.json: "):
        next(read_rows(copy))


@pytest.mark.parametrize("name", UNSAFE[:-1])
def test_overwrite_deletes_nothing_elsewhere(copy: Path, name: str) -> None:
    name_in_manifest(copy, name)
    ran = recordmill("convert", "csv", IRIS, copy, "--seed", 2, "--overwrite")
    assert ran.status == 73
    assert (copy.parent.parent / "outside").read_bytes() == b"a secret"


@pytest.mark.parametrize("name", UNSAFE[:-1])
def test_a_file_of_a_dataset_is_opened_below_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeNameError):
        open_file(LocalStore(str(tmp_path)), name)


@pytest.mark.parametrize("name", UNSAFE[:-1])
def test_a_workspace_has_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    workspace = Workspace.of(LocalStore(str(tmp_path)), "0123456789abcdef")
    for act in (workspace.local_path, workspace.get, workspace.discard):
        with pytest.raises(UnsafeNameError):
            act(name)


@pytest.mark.parametrize("text", ["../x", "/etc", "1.0", "", 1, None, "1.0.0/.."])
def test_latest_names_a_version_or_nothing(tmp_path: Path, text: object) -> None:
    (tmp_path / "latest.json").write_text(json.dumps({"version": text}))
    with pytest.raises(OutputError, match=r"latest\.json: expected a version"):
        read_latest(LocalStore(str(tmp_path)))
