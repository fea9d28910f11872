"""Archives as inputs of whole jobs: classes, splits, rejects, appends, other times."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import pytest
from archive_tools import ARCHIVES, files_in, tar_of, zip_of
from job_tools import (
    Argument,
    assert_whole,
    contents,
    convert,
    ints,
    manifest_of,
    recordmill,
)
from pixel_zoo import IMAGES

from recordmill.transforms.storage import read_member

JPEG, _ = IMAGES["rgb.jpg"]
SAMPLES = Path(__file__).parents[1] / "samples"


def test_the_published_form_of_cifar(tmp_path: Path) -> None:
    pack = ARCHIVES["in.tar.gz"]
    archive = tmp_path / "cifar-10-binary.tar.gz"
    files = files_in(SAMPLES / "cifar")
    archive.write_bytes(
        pack({f"cifar-10-batches-bin/{name}": data for name, data in files.items()})
    )
    outputs = [tmp_path / exchange for exchange in ("reference", "engine")]
    for output in outputs:
        convert("cifar", archive, output, "--exchange", output.name, "--name", "c")
        assert sorted(ints(output, "label"))[::16] == list(range(10))
        assert len(ints(output, "label", "test")) == 40
        assert_whole(output)
    assert contents(outputs[0]) == contents(outputs[1])


@pytest.mark.parametrize(
    ("archives", "classes", "splits"),
    [
        ({"pets.zip": ["p/cat/1.jpg", "p/dog/2.jpg"]}, ["cat", "dog"], ["train"]),
        (
            {"cat.zip": ["1.jpg"], "dog.zip": ["x/2.jpg", "3.jpg"]},
            ["cat", "dog"],
            ["train"],
        ),
        (
            {"train.zip": ["cat/1.jpg", "dog/2.jpg"], "test.zip": ["cat/3.jpg"]},
            ["cat", "dog"],
            ["train", "test"],
        ),
    ],
)
def test_classes_and_splits(
    tmp_path: Path,
    archives: dict[str, list[str]],
    classes: list[str],
    splits: list[str],
) -> None:
    for archive, names in archives.items():
        members = {name: JPEG + name.encode() for name in names}
        (tmp_path / archive).write_bytes(zip_of(members))
    out = tmp_path / "out"
    ran = recordmill("convert", "images", tmp_path, out)
    assert "is an archive: what is in it is read if the archive itself" in ran.err
    convert("images", *(tmp_path / archive for archive in archives), out)
    assert (out / "label.labels.txt").read_text().split() == classes
    assert sorted(manifest_of(out)["splits"]) == sorted(splits)


def test_rejects_name_the_member_and_keep_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "pets.zip").write_bytes(
        zip_of({"cat/1.jpg": JPEG, "cat/2.jpg": b"torn"})
    )
    out = tmp_path / "out"
    convert("images", tmp_path / "pets.zip", out, "--max-rejects", 1)
    (rejected,) = json.loads(recordmill("rejects", out, "--json").out)["rows"]
    assert rejected["uri"] == "pets.zip!/cat/2.jpg"
    assert base64.b64decode(rejected["raw_base64"]) == b"torn"


def test_rejects_of_tables_name_the_line(tmp_path: Path) -> None:
    kind = "in.tar.gz"
    table = b"x,y\n1,2\n3,4,5\n"
    (tmp_path / kind).write_bytes(ARCHIVES[kind]({"a.csv": table}))
    ran = recordmill("convert", "csv", tmp_path / kind, tmp_path / "out")
    assert f"{kind}!/a.csv line 3" in ran.err
    job: list[Argument] = [
        tmp_path / kind,
        tmp_path / "out",
        "--scratch",
        tmp_path / "s",
    ]
    (tmp_path / "s").mkdir()
    ran = recordmill("convert", "csv", *job, "--plan")
    assert f"archives: {kind} (1 file)" in ran.out
    assert read_member.UNPACKED.folder == str(tmp_path / "s")


def test_appended_touched_and_replaced(tmp_path: Path) -> None:
    one, two, out = tmp_path / "1.zip", tmp_path / "2.tar", tmp_path / "out"
    members = {f"{name}/{n}.jpg": JPEG + bytes([n]) for n in range(3) for name in "ab"}
    one.write_bytes(zip_of(members))
    convert("images", one, out, "--append")
    two.write_bytes(tar_of(members))
    for expected in ("done", "unchanged"):
        ran = convert("images", f"{tmp_path}/*.*", out, "--append", "--json")
        assert json.loads(ran.out)["status"] == expected
        os.utime(one)  # the same bytes, read to see that
    assert len(ints(out, "label")) == 12
    one.write_bytes(zip_of(members | {"a/1.jpg": JPEG + b"!"}))
    ran = recordmill("convert", "images", f"{tmp_path}/*.*", out, "--append")
    assert "1 changed (1.zip!/a/1.jpg)" in ran.err
    assert_whole(out)


def test_an_archive_that_is_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member would be told; the archive is told once."""
    from recordmill.transforms.commit import staging

    archive = tmp_path / "in.tar"
    members = {f"{n}.csv": b"x\n1\n" for n in range(5)}
    archive.write_bytes(tar_of(members))
    checked = staging._changed_locally

    def replaced(*args: object) -> object:
        archive.write_bytes(tar_of(members | {"6.csv": b"x\n2\n"}))
        return checked(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(staging, "_changed_locally", replaced)
    ran = recordmill("convert", "csv", archive, tmp_path / "out")
    assert f"1 input file changed while the run read them:\n  {archive}: " in ran.err


def test_cells_cannot_name_members(tmp_path: Path) -> None:
    (tmp_path / "in.zip").write_bytes(zip_of({"a.csv": b"f\n1.jpg\n"}))
    (tmp_path / "schema.yaml").write_text(
        "features: {f: {column: f, bytes_from: path, picture: {format: jpeg}}}"
    )
    job: list[Argument] = [tmp_path / "in.zip", tmp_path / "out"]
    schema: list[Argument] = ["--schema", tmp_path / "schema.yaml"]
    ran = recordmill("convert", "csv", *job, *schema)
    assert "unpack the archive and give its folder" in ran.err
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.jpg").write_bytes(JPEG)
    convert("csv", *job, *schema, "--files-root", tmp_path / "files")
    shutil.unpack_archive(tmp_path / "in.zip", tmp_path / "files")
    convert("csv", tmp_path / "files" / "a.csv", tmp_path / "out2", *schema)


def test_a_table_of_labels_in_the_archive(tmp_path: Path) -> None:
    table = b"path,label\nimg/1.jpg,cat\nimg/2.jpg,dog\n"
    members = {f"img/{n}.jpg": JPEG + bytes([n]) for n in (1, 2)} | {"t.csv": table}
    (tmp_path / "pets.zip").write_bytes(zip_of(members))
    out = tmp_path / "out"
    convert("images", tmp_path / "pets.zip", out, "--label-table", "t.csv")
    assert (out / "label.labels.txt").read_text().split() == ["cat", "dog"]
