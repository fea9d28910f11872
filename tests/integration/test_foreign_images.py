"""Images of other projects: what is accepted, TensorFlow decodes; no other is refused.

Two are folders of odd and broken images with which Pillow and Go's image package test
their decoders; one is of real photographs and scans. `make tools` downloads them.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from interop_tools import ask
from job_tools import convert

from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    ImageHeader,
    ImageHeaderError,
    image_format,
)
from recordmill.transforms.images.pixel_rules import PixelRules
from recordmill.transforms.images.transform import transform_image
from recordmill.transforms.rows.read_rows import read_rows

FOLDERS = Path(__file__).parents[2] / ".tools" / "images"
DECODABLE = {"jpeg", "png", "bmp"}
AS_PNG = PixelRules(encoding="png", transforms_all=True, keeps_samples=True)
OTHERS = {"gif", "webp", "tiff", "bmp"}
# How many images of the decodable formats there are at least: an empty folder would
# prove nothing.
EXPECTED = {"pillow": 500, "go": 40, "photos": 20}


def images_of(folder: str, formats: set[str] = DECODABLE) -> dict[str, bytes]:
    files = [path for path in sorted((FOLDERS / folder).rglob("*")) if path.is_file()]
    found = {str(path.relative_to(FOLDERS)): path.read_bytes() for path in files}
    return {
        name: data for name, data in found.items() if image_format(data[:16]) in formats
    }


def decoded_by_tensorflow(images: dict[str, bytes]) -> dict[str, bool]:
    given = [base64.b64encode(data).decode() for data in images.values()]
    return dict(zip(images, ask("answers.py", "images", given=given), strict=True))


def checked(data: bytes, level: CheckLevel) -> ImageHeader | ImageHeaderError:
    try:
        return check_image(data, level=level)
    except ImageHeaderError as error:
        return error


@pytest.mark.parametrize("folder", EXPECTED)
def test_shares(folder: str) -> None:
    images = images_of(folder)
    assert len(images) >= EXPECTED[folder]
    decoded = decoded_by_tensorflow(images)
    found = {name: checked(data, "structure") for name, data in images.items()}
    accepted = [
        name
        for name, header in found.items()
        if isinstance(header, ImageHeader) and header.kind in DECODABLE
    ]
    refused = {n: str(e) for n, e in found.items() if isinstance(e, ImageHeaderError)}
    assert len(accepted) > 0.8 * len(images)
    assert [name for name in accepted if not decoded[name]] == []
    assert {name: told for name, told in refused.items() if decoded[name]} == {}


def test_all_that_is_converted_is_decoded(tmp_path: Path) -> None:
    images = images_of("pillow")
    for number, data in enumerate(images.values()):
        path = tmp_path / "in" / f"class{number % 2}" / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    output = tmp_path / "out"
    arguments = ("--undecodable", "reject", "--max-rejects", len(images))
    convert("images", tmp_path / "in", output, *arguments)
    kept = {row["filename"]: row["image"] for row in read_rows(output)}
    assert len(kept) > 0.8 * len(images)
    assert all(decoded_by_tensorflow(kept).values())


@pytest.mark.parametrize(("folder", "expected"), [("pillow", 150), ("go", 15)])
def test_all_that_is_reencoded_is_decoded(folder: str, expected: int) -> None:
    made: dict[str, bytes] = {}
    rejected: dict[str, str] = {}
    for name, data in images_of(folder, OTHERS).items():
        header = checked(data, "structure")
        if isinstance(header, ImageHeaderError) or header.kind in DECODABLE:
            continue
        try:
            found = transform_image(data, header, AS_PNG, MAX_PIXELS)
            assert found is not None
            made[name] = found.data
        except ImageHeaderError as error:
            rejected[name] = str(error)
    assert len(made) >= expected
    assert len(rejected) < 0.1 * len(made)
    assert [each for each in rejected.values() if "0x" in each] == []
    assert [
        n for n, decodes in decoded_by_tensorflow(made).items() if not decodes
    ] == []
