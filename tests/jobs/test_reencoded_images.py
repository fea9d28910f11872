"""Images that TFDS cannot decode, re-encoded as PNG by a run."""

from __future__ import annotations

import io
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from job_tools import (
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    manifest_of,
    recordmill,
)
from PIL import Image
from pixel_zoo import IMAGES, encode
from test_undecodable import JPEG, PNG, image_feature, told, write

WEBP, ANIMATED, TIFF, FLOAT, BMP = (
    IMAGES[name][0]
    for name in (
        "lossy-alpha.webp",
        "animated.gif",
        "rgb.tif",
        "float.tif",
        "4-bit.bmp",
    )
)
REENCODE: list[Argument] = ["--undecodable", "reencode"]


def make_input(folder: Path) -> Path:
    return write(
        folder,
        a__1_jpg=JPEG,
        a__2_webp=WEBP,
        a__3_gif=ANIMATED,
        b__4_tif=TIFF,
        b__5_bmp=BMP,
        b__6_png=PNG,
    )


def feature(example: Any, name: str) -> Any:
    found = example.features.feature[name]
    return (found.bytes_list.value or found.int64_list.value)[0]


def test_all_become_decodable(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    ran = convert("images", data, tmp_path / "out", *REENCODE)
    assert image_feature(tmp_path / "out") == "Image"
    found = {feature(each, "filename"): each for each in examples_of(tmp_path / "out")}
    for name in (b"a/1.jpg", b"b/6.png"):  # as they are
        assert feature(found[name], "image") == (data / name.decode()).read_bytes()
    for name in (b"a/2.webp", b"a/3.gif", b"b/4.tif", b"b/5.bmp"):
        with (
            Image.open(data / name.decode()) as before,
            Image.open(io.BytesIO(feature(found[name], "image"))) as after,
        ):
            assert after.format == "PNG"
            pixels = [np.asarray(each.convert("RGBA")) for each in (before, after)]
            assert np.array_equal(*pixels)
    sizes = ["height", "width", "depth"]
    assert [feature(found[b"a/2.webp"], size) for size in sizes] == [5, 7, 4]
    assert_whole(tmp_path / "out")
    fact = "4 re-encoded as PNG, 1 its first frame"
    warning = (
        "not all of these images is in the records: 1 image (gif, re-encoded as PNG, "
        "its first frame) such as a/3.gif."
    )
    assert told(tmp_path / "out")["facts"]["changed images"] == fact
    assert told(tmp_path / "out")["facts"]["readers get"] == "decoded images (TFDS)"
    (found_warning,) = told(tmp_path / "out")["warnings"]
    assert found_warning.startswith(warning)
    assert f"changed images: {fact}" in ran.err
    assert warning in ran.err
    # The ways out that the warning names.
    job = [data, tmp_path / "out2", "--max-rejects", 4]
    convert("images", *job, "--undecodable", "reject")
    convert("images", *job, "--undecodable", "keep", "--overwrite")
    as_json = convert("images", data, tmp_path / "out3", *REENCODE, "--json")
    understood = json.loads(as_json.out)["understood"]
    assert understood["facts"]["changed images"] == fact


def test_the_exchange_is_chosen_and_changes_nothing(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    for name, wanted in (("1", []), ("2", ["scratch"]), ("3", ["engine"])):
        job: list[Argument] = [data, tmp_path / name, "--name", "pets", *REENCODE]
        convert("images", *job, *(f"--exchange={each}" for each in wanted))
    found = [contents(tmp_path / name) for name in "123"]
    assert found[0] == found[1] == found[2]
    ran = recordmill("convert", "images", data, tmp_path / "x", *REENCODE, "--plan")
    assert "pixels: what TFDS cannot decode as PNG, others as they are; by " in ran.out
    reason = "the size of an image is known only once it is encoded"
    assert f"exchange scratch, because {reason}" in ran.out
    ran = recordmill(
        *("convert", "images", data, tmp_path / "x", "--exchange", "reference"),
        *REENCODE,
    )
    assert ran.status != 0
    assert f"they are unknown, because {reason}" in ran.err
    assert "Use --exchange auto or --exchange scratch" in ran.err


def test_what_pillow_cannot_decode_is_a_reject(tmp_path: Path) -> None:
    damaged = encode("RGB", "WEBP", (64, 64), lossless=True)
    damaged = damaged[:30] + bytes(len(damaged) - 30)
    data = write(tmp_path / "in", a__1_jpg=JPEG, a__2_tif=FLOAT, b__3_webp=damaged)
    write(data, b__4_jpg=JPEG)
    convert("images", data, tmp_path / "out", *REENCODE, "--max-rejects", 2)
    rejects = recordmill("rejects", tmp_path / "out", "--json").out
    assert "tiff has pixels of the kind F (expected 8 or 16 bits a channel" in rejects
    assert "webp cannot be decoded: " in rejects
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 2


def test_max_pixels(tmp_path: Path) -> None:
    large = encode("RGB", "WEBP", (64, 64))
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_webp=large, b__3_webp=WEBP)
    job: list[Argument] = [data, tmp_path / "out", *REENCODE, "--max-pixels", 64 * 63]
    convert("images", *job, "--max-rejects", 1)
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 1


def test_append_reencodes_too(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    job: list[Argument] = [data, tmp_path / "out", "--append"]
    convert("images", *job, *REENCODE)
    write(data, a__7_webp=WEBP, b__8_jpg=JPEG)
    convert("images", *job, *REENCODE)
    assert manifest_of(tmp_path / "out")["rows_read"] == 8
    assert _image_of(tmp_path / "out")["dtype"] == "uint8"
    images = [feature(each, "image")[:4] for each in examples_of(tmp_path / "out")]
    assert sorted(set(images)) == [b"\x89PNG", JPEG[:4]]
    assert_whole(tmp_path / "out")
    write(data, a__9_webp=WEBP)
    for undecodable in ("keep", "reject"):
        ran = recordmill("convert", "images", *job, "--undecodable", undecodable)
        assert ran.status != 0
        assert "undecodable" in ran.err
    convert("images", data, tmp_path / "out", "--overwrite")
    assert _image_of(tmp_path / "out")["dtype"] == "bytes"


def _image_of(output: Path) -> Any:
    return next(f for f in manifest_of(output)["features"] if f["name"] == "image")


def test_a_rerun_is_unchanged(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    convert("images", data, tmp_path / "out", *REENCODE)
    before = manifest_of(tmp_path / "out")
    (data / "a" / "2.webp").touch()
    convert("images", data, tmp_path / "out", *REENCODE)
    assert manifest_of(tmp_path / "out") == before


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_a_batch_is_cut_by_what_is_made(
    tmp_path: Path, exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files of large images: a batch holds few of them."""
    from recordmill.transforms.sources.images import source

    sizes: list[int] = []
    batches: list[weakref.ref[pa.RecordBatch]] = []
    held: list[int] = []
    read_some = source.ImagesSource._read

    def read(self: Any, *arguments: Any) -> Any:
        found, stop = read_some(self, *arguments)
        sizes.append(sum(len(found.raw(row)[2]) for row in range(len(found.kept))))
        batches.append(weakref.ref(found.batch))
        held.append(sum(batch() is not None for batch in batches))
        return found, stop

    monkeypatch.setattr(source.ImagesSource, "_read", read)
    monkeypatch.setattr(source, "READ_BYTES", 20_000)
    buffer = io.BytesIO()
    Image.new("L", (200, 200)).save(buffer, "GIF")
    files = {f"a__{number}_gif": buffer.getvalue() for number in range(30)}
    data = write(tmp_path / "in", **files, b__1_jpg=JPEG)
    job = [data, tmp_path / "out", *REENCODE, "--exchange", exchange]
    recordmill("convert", "images", *job, "--plan")
    assert len(held) > 5
    assert max(held) < 4
    convert("images", *job)
    assert max(sizes) < 30_000
    assert manifest_of(tmp_path / "out")["rows_read"] == 31
