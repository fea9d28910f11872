"""Names that a file system does not take are told before the work, with what fits."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path

import apache_beam as beam
import pytest
from job_tools import IRIS, Argument, assert_whole, convert, recordmill
from pixel_zoo import IMAGES

from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
from recordmill.schemas.errors import UsageError

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
    assert message.startswith(f"Error: --name {'n' * 40}...: names of shard files ")
    assert f"{tmp_path / 'out'} takes 255" in message
    assert refused(*job, "n" * (251 - excess))[1] == 1
    for table in ("a.csv", "b.csv"):
        shutil.copy(IRIS, tmp_path / "in" / table)
        convert(*map(str, [*job, "n" * (250 - excess)]))
    assert_whole(tmp_path / "out")


def test_the_longest_split(tmp_path: Path) -> None:
    job: list[Argument] = ["csv", IRIS, tmp_path / "out", "--split"]
    message, excess = refused(*job, f"{'s' * 250}=1/2", "--split", "test=1/2")
    assert message.startswith(f"Error: --split: split {'s' * 40}...: names of shard")
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
    assert f"split {'s' * 40}... of the input: names of shard files" in message
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
    with pytest.raises(UsageError, match=r"`name` nnnn.*: names of shard files"):
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
