"""Names that lead nowhere outside of a dataset, that are too long, or that clash."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import apache_beam as beam
import fsspec
import pytest
from job_tools import IRIS, Argument, assert_whole, contents, convert, recordmill
from pixel_zoo import IMAGES

from recordmill import read_rows
from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
from recordmill.schemas.errors import OutputError, RecordmillError, UsageError
from recordmill.schemas.names import UnsafeNameError
from recordmill.transforms.commit.versions import read_latest, unfinished_runs
from recordmill.transforms.dataset.files import open_file
from recordmill.transforms.storage import LocalStore, open_store
from recordmill.transforms.tasks.workspace import Workspace

pytestmark = pytest.mark.usefixtures("without_beam")

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
    workspace = Workspace.for_run(LocalStore(str(tmp_path)), "0123456789abcdef")
    for act in (workspace.local_path, workspace.read_file, workspace.discard):
        with pytest.raises(UnsafeNameError):
            act(name)


@pytest.mark.parametrize("text", ["../x", "/etc", "1.0", "", 1, None, "1.0.0/.."])
def test_latest_names_a_version_or_nothing(tmp_path: Path, text: object) -> None:
    (tmp_path / "latest.json").write_text(json.dumps({"version": text}))
    with pytest.raises(OutputError, match=r"latest\.json: not a valid latest"):
        read_latest(LocalStore(str(tmp_path)))


IMAGE, _ = IMAGES["rgb.jpg"]


def refused(*arguments: Argument) -> tuple[str, int]:
    """Returns the message of a run that is refused, and how much is too much."""
    ran = recordmill("convert", *arguments)
    assert ran.status == 2, ran.err
    return ran.err, int(re.findall(r"shorter by ([\d,]+)", ran.err)[0].replace(",", ""))


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_longest_name_that_fits(tmp_path: Path, compression: str) -> None:
    (tmp_path / "in").mkdir()
    job: list[Argument] = ["csv", tmp_path / "in", tmp_path / "out", "--append"]
    job += ["--compression", compression, "--name"]
    message, excess = refused(*job, "n" * 250)  # before the input, which holds nothing
    assert message.startswith(f"Error: --name {'n' * 40}...: the names of shard files ")
    assert f"{tmp_path / 'out'} is 255" in message
    assert refused(*job, "n" * (251 - excess))[1] == 1
    for table in ("a.csv", "b.csv"):
        shutil.copy(IRIS, tmp_path / "in" / table)
        convert(*map(str, [*job, "n" * (250 - excess)]))
    assert_whole(tmp_path / "out")


def test_the_longest_split(tmp_path: Path) -> None:
    job: list[Argument] = ["csv", IRIS, tmp_path / "out", "--split"]
    message, excess = refused(*job, f"{'s' * 250}=1/2", "--split", "test=1/2")
    assert message.startswith(
        f"Error: --split: split {'s' * 40}...: the names of shard"
    )
    assert not (tmp_path / "out").exists()
    convert(*map(str, [*job, f"{'s' * (250 - excess)}=1/2", "--split", "test=1/2"]))


def test_the_longest_split_of_the_input(tmp_path: Path) -> None:
    split = "s" * 250
    for each in (split, "test"):
        (tmp_path / "in" / each / "cat").mkdir(parents=True)
        (tmp_path / "in" / each / "cat" / "1.jpg").write_bytes(IMAGE)
    job: list[Argument] = ["images", tmp_path / "in", tmp_path / "out"]
    job += ["--split-from", 1]
    message, excess = refused(*job)
    assert f"split {'s' * 40}... of the input: the names of shard files" in message
    (tmp_path / "in" / split).rename(tmp_path / "in" / split[excess:])
    convert(*map(str, job))


def test_the_longest_feature_with_classes(tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    job: list[Argument] = ["csv", IRIS, tmp_path / "out", "--schema", schema]

    def declare(feature: str) -> None:
        classes = "[setosa, versicolor, virginica]"
        schema.write_text(
            f"features:\n  ? {feature}\n  : {{column: species, classes: {classes}}}\n"
        )

    declare("ä" * 120)
    message, excess = refused(*job)
    assert f"--schema: feature {'ä' * 40}...: the name of its labels file" in message
    declare("ä" * (120 - (excess + 1) // 2))
    convert(*map(str, job))


def test_the_longest_path(tmp_path: Path) -> None:
    output = tmp_path.joinpath(*["d" * 99] * 40)
    message, excess = refused("csv", IRIS, output, "--name", "x")
    assert "paths of files in this output folder would have up to" in message
    assert not (tmp_path / ("d" * 99)).exists()
    while excess > 0:
        output, excess = output.parent, excess - 100
    convert("csv", IRIS, output, "--name", "x")


@pytest.mark.parametrize("more", [(), ("--dataset-version", "auto")])
def test_the_longest_key(more: tuple[str, ...]) -> None:
    url = f"memory://{uuid.uuid4().hex}/"
    message, excess = refused("csv", IRIS, url + "d" * 1000, "--name", "x", *more)
    assert "keys of files in this output folder would have up to" in message
    assert "the limit is 1,024" in message
    convert("csv", IRIS, url + "d" * (1000 - excess), "--name", "x", *more)


def test_pipelines(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`name` nnnn.*: the names of shard files"):
        (
            beam.Pipeline()
            | beam.Create([{"a": 1}])
            | WriteDataset(str(tmp_path / "out"), name="n" * 250)
        )


def test_folders_that_are_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    shutil.copy(IRIS, folder / "a.csv")
    out = tmp_path / "out"
    told = {
        "OUTPUT: expected UTF-8, found": [IRIS, folder],
        "INPUT: 0: expected UTF-8, found": [folder, out],
        "--scratch: expected UTF-8, found": [IRIS, out, "--scratch", folder],
    }
    for message, arguments in told.items():
        ran = recordmill("convert", "csv", *arguments)
        assert ran.status == 2
        assert f"{message} {tmp_path}/caf\\xe9" in ran.err
    monkeypatch.chdir(folder)
    ran = recordmill("convert", "csv", "a.csv", out)
    assert "caf\\xe9: the name of this input folder is not UTF-8" in ran.err
    ran = recordmill("convert", "csv", IRIS, "out")
    assert "caf\\xe9/out: the output folder's name is not UTF-8" in ran.err
    assert [file.name for file in folder.iterdir()] == ["a.csv"]
    assert not out.exists()


SCHEMA = """features:
  %s: {column: a, classes: [cat, dog]}
  %s: {column: b, classes: [%s]}
"""


@pytest.mark.parametrize(
    ("names", "classes", "status"),
    [
        (("x/y", "x.y"), "red, blue", 65),
        (("x/y", "x.z"), "red, blue", 0),  # the way out: one is renamed
        (("x/y", "x.y"), "cat, dog", 0),  # the same file
    ],
)
def test_two_features_with_one_labels_file(
    tmp_path: Path, names: tuple[str, str], classes: str, status: int
) -> None:
    table, schema, output = (tmp_path / name for name in ("t.csv", "s.yaml", "out"))
    last = classes.split(", ")[1]
    table.write_text(f"a,b\ncat,{last}\ndog,{last}\n")
    schema.write_text(SCHEMA % (*names, classes))
    ran = recordmill("convert", "csv", table, output, "--schema", schema)
    assert ran.status == status, ran.err
    if status:
        assert "x.y.labels.txt: rename one of them" in ran.err
        assert not output.exists()
        return
    found = (output / f"{names[1].replace('/', '.')}.labels.txt").read_text()
    assert found.split() == classes.split(", ")
