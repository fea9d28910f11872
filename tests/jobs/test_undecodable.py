"""Images that TFDS cannot decode: by their content, named, kept or rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import Argument, assert_whole, contents, convert, manifest_of, recordmill
from pixel_zoo import IMAGES

JPEG, PNG, GIF = (IMAGES[name][0] for name in ("rgb.jpg", "rgb.png", "still.gif"))
WEBP = next(data for name, (data, _) in IMAGES.items() if name.endswith(".webp"))


def write(folder: Path, **images: bytes) -> Path:
    for name, data in images.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def image_feature(output: Path) -> str:
    features = json.loads((output / "features.json").read_text())
    found: str = features["featuresDict"]["features"]["image"]["pythonClassName"]
    return found.rpartition(".")[2]


def told(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "run.json").read_text())["understood"]
    return found


@pytest.mark.parametrize("exchange", ["reference", "scratch", "engine"])
def test_content_decides(tmp_path: Path, exchange: str) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, a__2_jpg=WEBP, b__3_jpg=PNG)
    job: list[Argument] = [data, tmp_path / "out", "--exchange", exchange]
    ran = convert("images", *job)
    assert image_feature(tmp_path / "out") == "Scalar"  # the encoded bytes
    warning = "TFDS cannot decode these images: 1 webp such as a/2.jpg"
    assert any(each.startswith(warning) for each in told(tmp_path / "out")["warnings"])
    assert warning in ran.out + ran.err
    assert told(tmp_path / "out")["facts"]["readers get"] == "encoded bytes"
    # The way out that the warning names.
    job[1] = tmp_path / "out2"
    convert("images", *job, "--undecodable", "reject", "--max-rejects", 1)
    assert image_feature(tmp_path / "out2") == "Image"
    assert "webp is not decoded by TFDS" in recordmill("rejects", job[1]).out
    assert manifest_of(tmp_path / "out2")["rows_rejected"] == 1
    assert_whole(tmp_path / "out2")


def test_the_exchange_changes_nothing(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, a__2_jpg=WEBP, b__3_jpg=GIF)
    found = []
    for exchange in ("reference", "scratch", "engine"):
        job: list[Argument] = [data, tmp_path / exchange, "--name", "pets"]
        convert("images", *job, "--exchange", exchange)
        found.append(contents(tmp_path / exchange))
    assert found[0] == found[1] == found[2]


def test_a_wrong_ending_does_no_harm(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_gif=PNG)
    convert("images", data, tmp_path / "out")
    assert image_feature(tmp_path / "out") == "Image"
    assert told(tmp_path / "out")["facts"]["readers get"] == "decoded images (TFDS)"


def test_what_the_names_tell_is_told_before(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, a__2_gif=GIF, b__3_gif=GIF)
    ran = recordmill("convert", "images", data, tmp_path / "out", "--plan")
    assert "TFDS cannot decode 2 .gif (such as a/2.gif), so readers get" in ran.out
    ran = recordmill(
        *("convert", "images", data, tmp_path / "out", "--plan"),
        *("--undecodable", "reject", "--max-rejects", 2),
    )
    assert "TFDS cannot decode" not in ran.out


def test_appended_to_images_that_readers_decode(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_jpg=JPEG)
    job: list[Argument] = [data, tmp_path / "out", "--append"]
    convert("images", *job)
    write(data, a__3_jpg=WEBP)
    ran = recordmill("convert", "images", *job)
    assert ran.status != 0
    assert "webp is not decoded by TFDS" in ran.err
    convert("images", *job, "--max-rejects", 1)
    (image,) = [
        f for f in manifest_of(tmp_path / "out")["features"] if f["name"] == "image"
    ]
    assert image["dtype"] == "uint8"


def test_appended_to_encoded_images(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=WEBP, b__2_jpg=JPEG)
    job: list[Argument] = [data, tmp_path / "out", "--append"]
    convert("images", *job)
    write(data, a__3_jpg=JPEG)
    convert("images", *job)
    assert manifest_of(tmp_path / "out")["rows_read"] == 3


def test_an_expected_schema_that_the_content_breaks(tmp_path: Path) -> None:
    convert(
        "images", write(tmp_path / "good", a__1_jpg=JPEG, b__2_jpg=PNG), tmp_path / "x"
    )
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_jpg=WEBP)
    job: list[Argument] = [data, tmp_path / "out", "--expect-schema", tmp_path / "x"]
    ran = recordmill("convert", "images", *job)
    assert ran.status != 0
    assert "schema differs" in ran.err
    assert not (tmp_path / "out" / "manifest.json").exists()
