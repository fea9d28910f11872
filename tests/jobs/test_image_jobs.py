"""Images: what is decoded, rejected, and re-encoded."""

from __future__ import annotations

import base64
import io
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from job_tools import (
    SAMPLES,
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    manifest_of,
    recordmill,
)
from PIL import Image
from pixel_zoo import IMAGES, encode, png_chunk

from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import CheckLevel, ImageHeaderError
from recordmill.transforms.images.transform import transform_image
from recordmill.transforms.sources.images import source as images_source

pytestmark = pytest.mark.usefixtures("without_beam")

GIF, RGBA, TIFF, WEBP, FLOAT, BMP = (
    IMAGES[name][0]
    for name in (
        *("animated.gif", "rgba.png", "rgb.tif", "lossy-alpha.webp", "float.tif"),
        "4-bit.bmp",
    )
)
SCALED: list[Argument] = ["--resize", "shorter=8", "--crop", "8x8"]
REENCODE: list[Argument] = ["--undecodable", "reencode"]


def turned(size: tuple[int, int] = (24, 18)) -> bytes:
    exif = Image.Exif()
    exif[0x112] = 6
    return encode("RGB", "JPEG", size, exif=exif)


def make_input(folder: Path) -> Path:
    return write(folder, a__1_jpg=turned(), a__2_gif=GIF, b__3_png=RGBA, b__4_tif=TIFF)


def feature(example: Any, name: str) -> Any:
    found = example.features.feature[name]
    return (found.bytes_list.value or found.int64_list.value)[0]


def opened(example: Any) -> Image.Image:
    return Image.open(io.BytesIO(feature(example, "image")))


def test_scaled_and_cropped(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    ran = convert("images", data, tmp_path / "out", *SCALED)
    found = {feature(each, "filename"): each for each in examples_of(tmp_path / "out")}
    assert len(found) == 4
    for name, each in found.items():
        image = opened(each)
        assert image.format == ("JPEG" if name == b"a/1.jpg" else "PNG")
        assert image.size == (8, 8)
        assert (feature(each, "height"), feature(each, "width")) == (8, 8)
        assert feature(each, "depth") == len(image.getbands())
    assert image_feature(tmp_path / "out") == "Image"
    features = json.loads((tmp_path / "out/features.json").read_text())
    image = features["featuresDict"]["features"]["image"]["image"]
    assert image["shape"]["dimensions"] == ["8", "8", "3"]
    facts = told(tmp_path / "out")["facts"]
    assert facts["images when read"] == "decoded by TFDS"
    assert facts["pixels"].startswith(
        "rotated according to EXIF, shorter side 8 (bicubic), cropped to 8 x 8, JPEG as JPEG "
        "of quality 92, others as PNG; with Pillow "
    )
    assert facts["changed images"] == (
        "1 only the first frame, 1 rotated according to EXIF"
    )
    (found_warning,) = told(tmp_path / "out")["warnings"]
    warning = found_warning["message"]
    assert warning.startswith("these images are stored only in part: 1 image")
    assert warning in ran.err.replace("--animated reject", "`animated=reject`")
    assert_whole(tmp_path / "out")
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0
    # The way out that the warning names.
    job: list[Argument] = [data, tmp_path / "out2", *SCALED, "--animated", "reject"]
    convert("images", *job, "--max-rejects", 1)
    rejects = recordmill("rejects", tmp_path / "out2", "--json").out
    assert "gif has several frames (expected one, because of" in rejects
    assert not told(tmp_path / "out2")["warnings"]


@pytest.mark.parametrize("options", [SCALED, REENCODE])
def test_neither_exchange_nor_ranges_change_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[Argument]
) -> None:
    data = make_input(tmp_path / "in")
    for name, wanted in (("1", []), ("2", ["scratch"]), ("3", ["engine"])):
        job: list[Argument] = [data, tmp_path / name, "--name", "pets", *options]
        convert("images", *job, *(f"--exchange={each}" for each in wanted))
        # Small ranges, so that all workers are at work.
        monkeypatch.setattr(images_source, "RANGE_BYTES", 1)
    found = [contents(tmp_path / name) for name in "123"]
    assert found[0] == found[1] == found[2]
    command = ("convert", "images", data, tmp_path / "x", *options)
    plan = recordmill(*command, "--plan").out
    assert "  exchange scratch\n" in plan
    if options is REENCODE:
        assert (
            "pixels: images that TFDS cannot decode as PNG, others unchanged; with "
        ) in plan
    refused = recordmill(*command, "--exchange", "reference")
    assert refused.status != 0
    assert "images does not know with these options" in refused.err
    assert "Use --exchange auto or --exchange scratch" in refused.err


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_arrays_of_one_shape(tmp_path: Path, exchange: str) -> None:
    data = write(tmp_path / "in", a__1_jpg=turned(), b__2_png=RGBA)
    job: list[Argument] = [data, tmp_path / "out", "--exchange", exchange]
    convert("images", *job, *SCALED, "--pixels", "raw", "--channels", 1)
    for each in examples_of(tmp_path / "out"):
        assert len(feature(each, "image")) == 64
        assert feature(each, "depth") == 1
    image = image_of(tmp_path / "out")
    assert (image["shape"], image["content"]) == ([8, 8, 1], "array")
    assert told(tmp_path / "out")["facts"]["images when read"] == "arrays of pixels"
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0


def test_arrays_of_any_size(tmp_path: Path) -> None:
    from recordmill import open_dataset

    data = write(tmp_path / "in", a__1_jpg=turned(), a__2_jpg=turned((9, 30)))
    write(data, b__3_png=RGBA)
    convert("images", data, tmp_path / "out", "--pixels", "raw")
    shapes = {
        row["filename"]: np.array(row["image"]).reshape(row["height"], -1, 3).shape
        for row in open_dataset(str(tmp_path / "out"), "train")
    }
    assert shapes == {
        "a/1.jpg": (24, 18, 3),
        "a/2.jpg": (9, 30, 3),
        "b/3.png": (5, 7, 3),
    }
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0


def test_only_what_is_turned_is_made_anew(tmp_path: Path) -> None:
    """All other files are kept byte for byte, and so are undecodable ones."""
    plain = encode("RGB", "JPEG", (24, 18))
    data = write(tmp_path / "in", a__1_jpg=turned(), a__2_jpg=plain, b__3_gif=GIF)
    convert("images", data, tmp_path / "out", "--orientation", "apply")
    found = {feature(each, "filename"): each for each in examples_of(tmp_path / "out")}
    assert feature(found[b"a/2.jpg"], "image") == plain
    assert feature(found[b"b/3.gif"], "image") == GIF
    assert opened(found[b"a/1.jpg"]).size == (18, 24)
    assert image_feature(tmp_path / "out") == "Scalar"
    # The way out that the warning of GIFs names.
    (warning,) = told(tmp_path / "out")["warnings"]
    assert "`undecodable=reencode`" in warning["message"]
    again: list[Argument] = ["--undecodable", "reencode", "--overwrite"]
    convert("images", data, tmp_path / "out", "--orientation", "apply", *again)
    assert image_feature(tmp_path / "out") == "Image"
    assert told(tmp_path / "out")["facts"]["changed images"] == (
        "1 only the first frame, 1 re-encoded as PNG, 1 rotated according to EXIF"
    )


def test_what_cannot_be_decoded_is_a_reject_with_its_bytes(tmp_path: Path) -> None:
    damaged = encode("RGB", "WEBP", (64, 64), lossless=True)
    damaged = damaged[:30] + bytes(len(damaged) - 30)
    data = write(tmp_path / "in", a__1_jpg=turned(), b__2_webp=damaged)
    write(data, b__3_jpg=encode("RGB", "JPEG", (400, 1)), b__4_tif=FLOAT)

    def rejects(name: str, *options: Argument) -> dict[str, Any]:
        convert("images", data, tmp_path / name, *options, "--max-rejects", 3)
        ran = recordmill("rejects", tmp_path / name, "--json")
        return {each["reason"]: each for each in json.loads(ran.out)["rows"]}

    told = [
        "has 1 x 400 pixels, too few to crop (expected 18 x 18",
        "tiff has pixels of mode F (expected 8 or 16 bits per channel",
        "webp cannot be decoded: ",
    ]
    for name, options in (("1", ["--crop", "18x18"]), ("2", REENCODE)):
        found = rejects(name, *options)
        for reason, start in zip(sorted(found), told[-len(found) :], strict=True):
            assert reason.startswith(start)
        assert base64.b64decode(found[max(found)]["raw_base64"]) == damaged
    assert len(found) == 2
    # The ways out that the reason of too few pixels names.
    resized = ["--resize", "shorter=18", "--crop", "18x18"]
    for name, options in (("3", resized), ("4", ["--pad", "400x400:255"])):
        assert len(rejects(name, *options)) == 2


@pytest.mark.parametrize(
    ("options", "others", "told"),
    [
        (SCALED, [[]], "resize"),
        (REENCODE, [["--undecodable=keep"], ["--undecodable=reject"]], "undecodable"),
    ],
)
def test_append_and_rerun(
    tmp_path: Path, options: list[Argument], others: list[list[str]], told: str
) -> None:
    data, out = make_input(tmp_path / "in"), tmp_path / "out"
    convert("images", data, out, "--append", *options)
    before = manifest_of(out)
    (data / "a" / "1.jpg").touch()
    convert("images", data, out, "--append", *options)
    assert manifest_of(out) == before
    write(data, a__7_webp=encode("RGB", "WEBP", (30, 9)))
    convert("images", data, out, "--append", *options)
    assert manifest_of(out)["rows_read"] == 5
    assert image_of(out)["dtype"] == "uint8"
    images = [opened(each) for each in examples_of(out)]
    assert {each.format for each in images} == {"JPEG", "PNG"}
    assert (options is REENCODE) or {each.size for each in images} == {(8, 8)}
    assert_whole(out)
    write(data, a__8_webp=encode("RGB", "WEBP", (30, 9)))
    for other in others:
        ran = recordmill("convert", "images", data, out, "--append", *other)
        assert ran.status != 0
        assert told in ran.err
    convert("images", data, out, "--overwrite")
    assert image_of(out)["dtype"] == "bytes"


def image_of(output: Path) -> Any:
    return next(f for f in manifest_of(output)["features"] if f["name"] == "image")


@pytest.mark.parametrize(
    ("given", "told", "way_out"),
    [
        ("--crop 4x4 --pad 8x8", "--crop and --pad cannot be combined", "--pad 30x30"),
        ("--pixels raw --reencode png", "arrays are not encoded", "--pixels raw"),
        (
            "--channels 4 --reencode jpeg",
            "Use --reencode png or --channels 3",
            "--channels 4 --reencode png",
        ),
        (
            "--undecodable reject --resize 4x4",
            "Leave out --undecodable",
            "--resize 4x4",
        ),
        ("--resize 4", "expected height x width in pixels", "--resize 4x4"),
        ("--channels 2", "'keep', '1', '3', '4'", "--channels 3"),
    ],
)
def test_options_that_exclude_each_other(
    tmp_path: Path, given: str, told: str, way_out: str
) -> None:
    data = write(tmp_path / "in", a__1_jpg=turned(), b__2_png=RGBA)
    command = ("convert", "images", data, tmp_path / "out")
    ran = recordmill(*command, *given.split())
    assert ran.status == 2
    assert told in ran.err
    assert recordmill(*command, *way_out.split(), "--plan").status == 0


def test_a_job_file_may_say_numbers(tmp_path: Path) -> None:
    make_input(tmp_path / "in")
    job = tmp_path / "job.yaml"
    job.write_text(
        "source: images\ninputs: [in]\noutput: out\n"
        "images: {resize: 8x6, channels: 3, reencode: 'webp:lossless'}\n"
    )
    assert recordmill("run", job).status == 0
    for each in examples_of(tmp_path / "out"):
        assert (opened(each).format, opened(each).size) == ("WEBP", (6, 8))
    assert image_feature(tmp_path / "out") == "Scalar"


def test_arrays_have_the_pixels(tmp_path: Path) -> None:
    pixels = np.arange(4 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    data = write(tmp_path / "in", a__1_png=buffer.getvalue(), b__2_png=RGBA)
    convert("images", data, tmp_path / "out", "--pixels", "raw", "--crop", "4x3")
    images = [feature(each, "image") for each in examples_of(tmp_path / "out")]
    assert pixels.tobytes() in images


def test_images_are_counted_without_decoding_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []

    def make(*given: Any) -> Any:
        decoded.append(given)
        return transform_image(*given)

    monkeypatch.setattr(images_source, "transform_image", make)
    data = write(tmp_path / "in", a__1_jpg=turned(), a__2_png=RGBA)
    write(data, b__3_jpg=turned(), b__4_tif=TIFF)
    splits: list[Argument] = ["--split", "train=0.5", "--split", "test=0.5"]
    convert("images", data, tmp_path / "out", *SCALED, *splits, "--stratify-by=label")
    records = manifest_of(tmp_path / "out")["splits"].values()
    assert [split["records"] for split in records] == [2, 2]
    assert len(decoded) == 4


def test_a_schema_of_lists_of_pixels_is_inferred(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    ran = recordmill("schema", "infer", "images", data, "--pixels", "raw")
    assert ran.status == 0, ran.err
    assert "image: {dtype: uint8, shape: [null, null, 3]" in ran.out


def test_what_tfds_cannot_decode_becomes_png(tmp_path: Path) -> None:
    data = make_input(tmp_path / "in")
    write(data, a__2_webp=WEBP, a__3_gif=GIF, b__5_bmp=BMP, b__6_png=PNG)
    (data / "a/2.gif").unlink()
    (data / "b/3.png").unlink()
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
    fact = "4 re-encoded as PNG, 1 only the first frame"
    warning = (
        "these images are stored only in part: 1 image (gif, re-encoded as PNG, only "
        "the first frame) such as a/3.gif."
    )
    assert told(tmp_path / "out")["facts"]["changed images"] == fact
    assert told(tmp_path / "out")["facts"]["images when read"] == "decoded by TFDS"
    (found_warning,) = told(tmp_path / "out")["warnings"]
    assert found_warning["message"].startswith(warning)
    assert f"changed images: {fact}" in ran.err
    assert warning in ran.err
    # The ways out that the warning names.
    job = [data, tmp_path / "out2", "--max-rejects", 4]
    convert("images", *job, "--undecodable", "reject")
    convert("images", *job, "--undecodable", "keep", "--overwrite")
    as_json = convert("images", data, tmp_path / "out3", *REENCODE, "--json")
    understood = json.loads(as_json.out)["understood"]
    assert understood["facts"]["changed images"] == fact


def test_max_pixels(tmp_path: Path) -> None:
    large = encode("RGB", "WEBP", (64, 64))
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_webp=large, b__3_webp=WEBP)
    job: list[Argument] = [data, tmp_path / "out", *REENCODE, "--max-pixels", 64 * 63]
    convert("images", *job, "--max-rejects", 1)
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 1


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_a_batch_is_cut_by_what_is_made(
    tmp_path: Path, exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files of large images: a batch holds few of them."""
    sizes: list[int] = []
    batches: list[weakref.ref[pa.RecordBatch]] = []
    held: list[int] = []
    read_some = images_source.ImagesSource._read_files

    def read(self: Any, *arguments: Any) -> Any:
        found, stop = read_some(self, *arguments)
        sizes.append(
            sum(len(found.raw_row(row)[2]) for row in range(len(found.row_indices)))
        )
        batches.append(weakref.ref(found.batch))
        held.append(sum(batch() is not None for batch in batches))
        return found, stop

    monkeypatch.setattr(images_source.ImagesSource, "_read_files", read)
    monkeypatch.setattr(images_source, "READ_BYTES", 20_000)
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


JPEG, PNG, STILL_GIF = (IMAGES[name][0] for name in ("rgb.jpg", "rgb.png", "still.gif"))
STILL_WEBP = next(data for name, (data, _) in IMAGES.items() if name.endswith(".webp"))


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
    data = write(tmp_path / "in", a__1_jpg=JPEG, a__2_jpg=STILL_WEBP, b__3_jpg=PNG)
    job: list[Argument] = [data, tmp_path / "out", "--exchange", exchange]
    ran = convert("images", *job)
    assert image_feature(tmp_path / "out") == "Scalar"  # the encoded bytes
    codes = [each["code"] for each in told(tmp_path / "out")["warnings"]]
    assert codes == ["undecodable-images"]
    assert "cannot decode these images: 1 webp such as a/2.jpg" in ran.err
    assert told(tmp_path / "out")["facts"]["images when read"] == "encoded bytes"
    # The way out that the warning names.
    job[1] = tmp_path / "out2"
    convert("images", *job, "--undecodable", "reject", "--max-rejects", 1)
    assert image_feature(tmp_path / "out2") == "Image"
    assert "webp cannot be decoded by TFDS" in recordmill("rejects", job[1]).out
    assert manifest_of(tmp_path / "out2")["rows_rejected"] == 1
    assert_whole(tmp_path / "out2")


def test_the_exchange_changes_nothing(tmp_path: Path) -> None:
    data = write(
        tmp_path / "in", a__1_jpg=JPEG, a__2_jpg=STILL_WEBP, b__3_jpg=STILL_GIF
    )
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
    assert told(tmp_path / "out")["facts"]["images when read"] == "decoded by TFDS"


def test_what_the_names_tell_is_told_before(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, a__2_gif=STILL_GIF, b__3_gif=STILL_GIF)
    ran = recordmill("convert", "images", data, tmp_path / "out", "--plan")
    assert (
        "TFDS cannot decode these images: 2 gifs such as a/2.gif; therefore readers get"
        in ran.out
    )
    ran = recordmill(
        *("convert", "images", data, tmp_path / "out", "--plan"),
        *("--undecodable", "reject", "--max-rejects", 2),
    )
    assert "TFDS cannot decode" not in ran.out


def test_appended_to_images_that_readers_decode(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_jpg=JPEG)
    job: list[Argument] = [data, tmp_path / "out", "--append"]
    convert("images", *job)
    write(data, a__3_jpg=STILL_WEBP)
    ran = recordmill("convert", "images", *job)
    assert ran.status != 0
    assert "webp cannot be decoded by TFDS" in ran.err
    convert("images", *job, "--max-rejects", 1)
    (image,) = [
        f for f in manifest_of(tmp_path / "out")["features"] if f["name"] == "image"
    ]
    assert image["dtype"] == "uint8"


def test_appended_to_encoded_images(tmp_path: Path) -> None:
    data = write(tmp_path / "in", a__1_jpg=STILL_WEBP, b__2_jpg=JPEG)
    job: list[Argument] = [data, tmp_path / "out", "--append"]
    convert("images", *job)
    write(data, a__3_jpg=JPEG)
    convert("images", *job)
    assert manifest_of(tmp_path / "out")["rows_read"] == 3


def test_an_expected_schema_that_the_content_breaks(tmp_path: Path) -> None:
    convert(
        "images", write(tmp_path / "good", a__1_jpg=JPEG, b__2_jpg=PNG), tmp_path / "x"
    )
    data = write(tmp_path / "in", a__1_jpg=JPEG, b__2_jpg=STILL_WEBP)
    job: list[Argument] = [data, tmp_path / "out", "--expect-schema", tmp_path / "x"]
    ran = recordmill("convert", "images", *job)
    assert ran.status != 0
    assert "schema differs" in ran.err
    assert not (tmp_path / "out" / "manifest.json").exists()


COUNTS = {"splits by folder", "classes", "images"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(SAMPLES / "images", tmp_path / "in"))
    whole = next(folder.rglob("*.jpg"))
    (whole.parent / "cut.jpg").write_bytes(whole.read_bytes()[:-500])
    return folder


def test_an_image_that_is_cut_is_rejected(images: Path, tmp_path: Path) -> None:
    ran = recordmill("convert", "images", images, tmp_path / "out")
    assert ran.status == 65
    assert "1 of 11 rows" in ran.err
    ran = convert("images", images, tmp_path / "out", "--max-rejects", 1)
    found = json.loads((tmp_path / "out" / "run.json").read_text())["understood"]
    told = {name: value for name, value in found["facts"].items() if name in COUNTS}
    assert told
    for name, value in told.items():  # the dataset has one less
        assert value.endswith(" in the input")
        assert f"  {name}: {value}\n" in ran.err
    ran = recordmill("rejects", tmp_path / "out")
    assert "JPEG is cut short: no end-of-image marker (FF D9)" in ran.out
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0


def test_the_plan_tells_counts_of_the_input(images: Path, tmp_path: Path) -> None:
    cut = next(images.rglob("cut.jpg"))
    command = ("convert", "images", images, tmp_path / "out", "--plan", "--json")

    def classes() -> str:
        return json.loads(recordmill(*command).out)["understood"]["facts"]["classes"]

    cut.write_bytes(b"")
    assert classes().endswith(") in the input")
    cut.unlink()
    assert classes().endswith(")")


LEVELS: list[tuple[CheckLevel, bytes, str]] = [
    ("header", b"", ""),
    ("structure", b"cut", "PNG is cut short"),
    ("decode", b"cut", "PNG is cut short"),
    ("decode", b"pixels", "png cannot be decoded"),
]


@pytest.mark.parametrize(("level", "what", "message"), LEVELS)
def test_levels(level: CheckLevel, what: bytes, message: str) -> None:
    data, (_, height, width, _) = IMAGES["rgb.png"]
    if what == b"cut" or level == "header":
        data = data[:-10]
    if what == b"pixels":
        data = with_other_pixels(data)
    if not message:
        found = check_image(data, level=level)
        assert (found.height, found.width) == (height, width)
        return
    with pytest.raises(ImageHeaderError, match=message):
        check_image(data, level=level)


def with_other_pixels(data: bytes) -> bytes:
    """The PNG with an IDAT of zeros, whose CRC is right."""
    start = data.index(b"IDAT") - 4
    size = int.from_bytes(data[start : start + 4], "big")
    return data[:start] + png_chunk(b"IDAT", bytes(size)) + data[start + 12 + size :]


def test_max_pixels_of_a_check() -> None:
    data, _ = IMAGES["rgb.png"]
    with pytest.raises(ImageHeaderError, match=r"png of 5 x 7 pixels \(expected 34 "):
        check_image(data, max_pixels=34)


def test_only_our_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify --deep` takes what convert took, however large for Pillow."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    data, _ = IMAGES["rgb.png"]
    assert check_image(data, level="decode").width == 7
