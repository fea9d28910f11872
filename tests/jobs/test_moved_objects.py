"""Boxes, outlines and masks lie on the pixels of their objects, whatever is done to these."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import Argument, Ran, assert_whole, contents, convert, recordmill
from object_trees import CLASSES, Pictured, coco_tree, objects_of, shown, with_exif
from PIL import Image
from pycocotools import mask as coco_mask

pytestmark = pytest.mark.usefixtures("without_beam")

HEIGHT, WIDTH = 40, 64
# White boxes on black: ymin, xmin, ymax, xmax in pixels.
BOXES = [(4, 8, 20, 24), (10, 30, 36, 60), (0, 0, 40, 64), (24, 2, 38, 12)]


def drawn(number: int) -> Image.Image:
    top, left, bottom, right = BOXES[number % len(BOXES)]
    image = Image.new("RGB", (WIDTH, HEIGHT))
    image.paste((255, 255, 255), (left, top, right, bottom))
    return image


def pictured(number: int, orientation: int, *, on_shown: bool) -> Pictured:
    """Returns an image with its box, which was drawn on it as it is stored, or as shown."""
    top, left, bottom, right = BOXES[number % len(BOXES)]
    image = drawn(number)
    if on_shown:  # stored so that viewers turn it into this one
        image = shown(image, {6: 8, 8: 6}.get(orientation, orientation))
    box = {"bbox": [left, top, right - left, bottom - top]}
    box["segmentation"] = [[left, top, right, top, right, bottom, left, bottom]]
    name = f"{number}-{orientation}-{on_shown}.png"
    return Pictured(name, with_exif(image, orientation), (HEIGHT, WIDTH), [box])


def turned_tree(folder: Path) -> Path:
    """Writes images of every orientation; on those that exchange sides also as shown."""
    images = [pictured(n, n, on_shown=False) for n in range(1, 9)]
    images += [pictured(n, n, on_shown=True) for n in range(5, 9)]
    return coco_tree(folder, images)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--orientation", "apply"],
        ["--resize", "80x96", "--reencode", "png"],
        ["--resize", "longer=128", "--orientation", "keep", "--reencode", "png"],
        ["--crop", "30x36", "--reencode", "png"],
        ["--resize", "longer=48", "--pad", "70x50", "--reencode", "png"],
    ],
    ids=lambda options: "".join(options[:2]),
)
def test_boxes_and_masks_lie_where_the_pixels_are(
    tmp_path: Path, options: list[Argument]
) -> None:
    data, out = turned_tree(tmp_path / "in"), tmp_path / "out"
    convert("images", data, out, "--masks", "png", *options)
    assert_whole(out)
    rows = objects_of(out)
    assert len(rows) == 12
    for name, row in rows.items():
        image = Image.open(io.BytesIO(row["image"][0])).convert("L")
        assert [image.height, image.width] == [*row["height"], *row["width"]]
        white = np.asarray(image) > 127
        if not white.any():  # it is cropped away
            assert row["objects/bbox"] == row["objects/mask"] == []
            continue
        rows_of, columns_of = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        found = np.array(row["objects/bbox"]) * (image.size[::-1] * 2)
        wanted = (rows_of[0], columns_of[0], rows_of[-1] + 1, columns_of[-1] + 1)
        # The filter of images may make an edge half a pixel wider.
        assert np.abs(found - wanted).max() <= 0.75, name
        (mask,) = row["objects/mask"]
        pixels = np.asarray(Image.open(io.BytesIO(mask)))
        assert set(np.unique(pixels)) <= {0, 1}
        assert pixels.shape == white.shape
        # Nearest and the filter of images differ along the edges alone.
        assert np.mean(pixels != white) < 0.06, name
        (outline,) = row["objects/segmentation"]
        (ring,) = json.loads(outline)
        corners = np.array(ring).reshape(-1, 2)
        box = [*corners.min(0)[::-1], *corners.max(0)[::-1]]
        limits = np.array(image.size[::-1] * 2) if "--crop" in options else 1e9
        assert np.abs(found - np.clip(box, 0, limits)).max() < 0.01


def test_objects_that_are_cropped_away_are_counted(tmp_path: Path) -> None:
    left = {"bbox": [0, 0, 4, 40], "area": 160}
    middle = {"bbox": [20, 10, 40, 20], "area": 400, "category_id": 21}
    file = with_exif(Image.new("RGB", (WIDTH, HEIGHT)), 1)
    images = [
        Pictured("a.png", file, (HEIGHT, WIDTH), [left, middle]),
        Pictured("b.png", file + b" ", (HEIGHT, WIDTH), [left]),
        Pictured("c.png", file + b"  ", (HEIGHT, WIDTH), []),
    ]
    out = tmp_path / "out"
    data = coco_tree(tmp_path / "in", images)
    ran = convert("images", data, out, "--resize", "20x32", "--crop", "20x20")
    assert "objects cropped away: 2, the first of images/a.png" in ran.err
    rows = objects_of(out)
    # 6 columns are cropped on each side: of the middle one's 20, from 10 to 30, 16 stay.
    assert rows["a.png"]["objects/bbox"] == pytest.approx([0.25, 0.2, 0.75, 1])
    assert rows["a.png"]["objects/label"] == [2]
    assert rows["a.png"]["objects/area"] == pytest.approx([400 / 4 * 16 / 20])
    assert rows["b.png"]["objects/label"] == rows["c.png"]["objects/label"] == []
    facts = json.loads((out / "run.json").read_text())["understood"]["facts"]
    assert facts["objects cropped away"] == "2, the first of images/a.png"


def test_sizes_that_disagree_are_rejects(tmp_path: Path) -> None:
    file = with_exif(drawn(0), 1)
    box = {"bbox": [1, 1, 2, 2]}
    images = [
        Pictured("a.png", file, (HEIGHT, WIDTH), [box]),
        Pictured("b.png", file, (WIDTH, HEIGHT), [box]),
    ]
    data, out = coco_tree(tmp_path / "in", images), tmp_path / "out"
    ran = recordmill("convert", "images", data, out)
    assert ran.status == 65
    reason = (
        "has 40 x 64 pixels, but its annotations are of 64 x 40 (height x width). Put"
    )
    assert reason in ran.err
    # The way out: the sizes of the file, or the file that was annotated.
    coco_tree(data, [images[0], images[0]._replace(name="b.png")])
    convert("images", data, out)
    coco_tree(data, [images[0], images[1]._replace(data=with_exif(drawn(0), 6))])
    convert("images", data, out, "--overwrite")
    assert len(objects_of(out)) == 2


def rle(mask: Any) -> dict[str, Any]:
    found = coco_mask.encode(np.asfortranarray(mask))
    return {"size": found["size"], "counts": found["counts"].decode()}


def test_run_lengths_are_drawn_and_moved(tmp_path: Path) -> None:
    mask = np.asarray(drawn(0).convert("L")) // 255
    numbers = [
        len(run)
        for run in np.split(mask.T.ravel(), np.flatnonzero(np.diff(mask.T.ravel())) + 1)
    ]
    outlines = [rle(mask), {"size": [HEIGHT, WIDTH], "counts": numbers}]
    objects = [{"bbox": [8, 4, 16, 16], "segmentation": each} for each in outlines]
    file = with_exif(drawn(0), 1)
    data = coco_tree(
        tmp_path / "in", [Pictured("a.png", file, (HEIGHT, WIDTH), objects)]
    )
    convert("images", data, tmp_path / "out", "--masks", "png")
    row = objects_of(tmp_path / "out")["a.png"]
    for each in row["objects/mask"]:
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(each))), mask)
    assert [json.loads(each) for each in row["objects/segmentation"]] == outlines
    size = ["--resize", "20x100", "--reencode", "png"]
    convert("images", data, tmp_path / "out2", *size)
    nearest = Image.fromarray(mask).resize((100, 20), Image.Resampling.NEAREST)
    for text in objects_of(tmp_path / "out2")["a.png"]["objects/segmentation"]:
        assert np.array_equal(coco_mask.decode(json.loads(text)), np.asarray(nearest))


def test_a_mask_is_that_of_cocos_tools(tmp_path: Path) -> None:
    """Polygons are drawn by their rule, several as one mask."""
    outlines = [
        [[3.5, 2.25, 30.1, 8, 25, 33.3, 9.75, 20]],
        [[1, 1, 9, 1, 9, 9], [20.5, 20.5, 40, 20, 38, 35, 22, 30]],
    ]
    objects = [{"bbox": [1, 1, 40, 35], "segmentation": each} for each in outlines]
    file = with_exif(drawn(0), 1)
    data = coco_tree(
        tmp_path / "in", [Pictured("a.png", file, (HEIGHT, WIDTH), objects)]
    )
    convert("images", data, tmp_path / "out", "--masks", "png")
    masks = objects_of(tmp_path / "out")["a.png"]["objects/mask"]
    for mask, outline in zip(masks, outlines, strict=True):
        parts = coco_mask.decode(coco_mask.frPyObjects(outline, HEIGHT, WIDTH))
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(mask))), parts.max(2))


@pytest.mark.parametrize(
    "outline",
    [
        [[1, 2, 3, 4]],
        {"size": [40, 64], "counts": [1, 2, 9999]},
        {"size": [64, 40], "counts": [2560]},
    ],
)
def test_outlines_that_cannot_be_drawn_are_rejects(
    tmp_path: Path, outline: Any
) -> None:
    objects = [{"bbox": [1, 1, 40, 35], "segmentation": outline}]
    file = with_exif(drawn(0), 1)
    data = coco_tree(
        tmp_path / "in",
        [
            Pictured("a.png", file, (HEIGHT, WIDTH), objects),
            pictured(2, 1, on_shown=False),
        ],
    )
    ran = recordmill("convert", "images", data, tmp_path / "out", "--masks", "png")
    assert ran.status == 65
    assert "has an outline" in ran.err
    convert("images", data, tmp_path / "out", "--masks", "png", "--max-rejects", 1)


def test_masks_need_pycocotools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = turned_tree(tmp_path / "in")
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    ran = recordmill("convert", "images", data, tmp_path / "out", "--masks", "png")
    assert ran.status == 2
    assert (
        "pip install pycocotools, or pip install '.[coco]' in the folder of" in ran.err
    )
    convert("images", data, tmp_path / "out")


def refused(*arguments: Argument) -> Ran:
    ran = recordmill("convert", "images", *arguments)
    assert ran.status not in (0, 70), ran.err
    return ran


def test_what_objects_are_needed_for(tmp_path: Path) -> None:
    data, out = turned_tree(tmp_path / "in"), tmp_path / "out"
    instances = (data / "instances.json").rename(tmp_path / "elsewhere.json")
    ran = refused(data, out, "--feature-names", "tfod")
    assert "--feature-names imagenet" in ran.err
    convert("images", data, out, "--feature-names", "imagenet")
    ran = refused(data, tmp_path / "new", "--masks", "png")
    assert "--masks requires --annotations: leave it out" in ran.err
    plain = Pictured(
        "a.png", with_exif(drawn(0), 1), (HEIGHT, WIDTH), [{"bbox": [1, 1, 5, 5]}]
    )
    boxes = coco_tree(tmp_path / "boxes", [plain])
    ran = refused(boxes, tmp_path / "new", "--masks", "png")
    assert "no outlines of objects were found" in ran.err
    assert "use --masks none" in ran.err
    convert("images", boxes, tmp_path / "new", "--masks", "none")
    instances.rename(data / "elsewhere.json")
    more = ["--annotations", data / "elsewhere.json", "--overwrite"]
    convert("images", data, out, "--feature-names", "tfod", *more)
    convert("images", data, out, "--masks", "png", *more)


def test_the_page_draws_the_boxes(tmp_path: Path) -> None:
    data = turned_tree(tmp_path / "in")
    for names in ("default", "tfod"):
        out, page = tmp_path / names, tmp_path / f"{names}.html"
        convert("images", data, out, "--feature-names", names)
        assert recordmill("report", out, "-o", page).status == 0
        text = page.read_text()
        assert text.count('<i class="box-') == 12
        place = "left:12.5%;top:10.0%;width:25.0%;height:40.0%"
        assert f'style="{place}" title="{CLASSES[3]}">{CLASSES[3]}</i>' in text


@pytest.mark.parametrize(
    "options", [[], ["--crop", "30x36"], ["--feature-names", "tfod"]]
)
def test_no_exchange_changes_a_byte(tmp_path: Path, options: list[Argument]) -> None:
    data = turned_tree(tmp_path / "in")
    names = ["scratch", "engine", *([] if "--crop" in options else ["reference"])]
    for exchange in names:
        job: list[Argument] = [data, tmp_path / exchange, "--name", "pets", *options]
        convert("images", *job, "--masks", "png", "--exchange", exchange)
        assert contents(tmp_path / exchange) == contents(tmp_path / "scratch")


def test_keypoints_are_scaled_and_named(tmp_path: Path) -> None:
    points = [8, 4, 2, 23, 19, 1, 0, 0, 0]
    box = {"bbox": [8, 4, 16, 16], "keypoints": points, "num_keypoints": 2}
    file = with_exif(drawn(0), 1)
    data = coco_tree(tmp_path / "in", [Pictured("a.png", file, (HEIGHT, WIDTH), [box])])
    convert("images", data, tmp_path / "out")
    assert objects_of(tmp_path / "out")["a.png"]["objects/keypoints"] == points
    convert("images", data, tmp_path / "twice", "--resize", "80x128")
    # The middle of pixel 8 is at 8.5, and of the two that it becomes at 17.
    found = objects_of(tmp_path / "twice")["a.png"]["objects/keypoints"]
    assert found == [16.5, 8.5, 2, 46.5, 38.5, 1, 0, 0, 0]
    convert("images", data, tmp_path / "tfod", "--feature-names", "tfod")
    row = objects_of(tmp_path / "tfod")["a.png"]
    wanted = {"x": [8 / 64, 23 / 64, 0], "y": [4 / 40, 19 / 40, 0]}
    for name, values in wanted.items():
        assert row[f"image/object/keypoint/{name}"] == pytest.approx(values)
    assert row["image/object/keypoint/visibility"] == [2, 1, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_yolos_boxes_lie_on_what_viewers_show(tmp_path: Path, orientation: int) -> None:
    top, left, bottom, right = BOXES[0]
    image = shown(drawn(0), {6: 8, 8: 6}.get(orientation, orientation))
    for name in ("images", "labels"):
        (tmp_path / "in" / name / "train").mkdir(parents=True)
    (tmp_path / "in/images/train/a.png").write_bytes(with_exif(image, orientation))
    ring = [left, top, right, top, right, bottom, left, bottom]
    parts = (
        f"{at / side:.6f}" for at, side in zip(ring, (WIDTH, HEIGHT) * 4, strict=True)
    )
    (tmp_path / "in/labels/train/a.txt").write_text(f"0 {' '.join(parts)}\n")
    (tmp_path / "in/data.yaml").write_text("train: images/train\nnames: [cat]\n")
    for options in ([], ["--orientation", "apply"]):
        out = tmp_path / f"out{len(options)}"
        convert("images", tmp_path / "in", out, "--masks", "png", *options)
        (row,) = objects_of(out).values()
        pixels = Image.open(io.BytesIO(row["image"][0])).convert("L")
        box = np.array(row["objects/bbox"]) * (pixels.size[::-1] * 2)
        found = pixels.getbbox()
        assert found is not None
        assert box == pytest.approx([found[1], found[0], found[3], found[2]], abs=0.01)
        (mask,) = row["objects/mask"]
        drawn_mask = np.asarray(Image.open(io.BytesIO(mask)))
        assert np.mean(drawn_mask != np.asarray(pixels) // 255) < 0.03
