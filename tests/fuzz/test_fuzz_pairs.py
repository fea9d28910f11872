"""Damaged masks, texts and JSON beside images: each image has its own, or is a reject."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from mutations import damaged, try_all, with_odd_keys
from PIL import Image
from pixel_zoo import IMAGES
from source_tools import read, write

from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource

pytestmark = pytest.mark.fuzz

JPEG, _ = IMAGES["rgb.jpg"]
MASKS = [IMAGES[name][0] for name in ("gray.png", "palette.png", "gray-16-bit.png")]
NAMES = [f"images/{n}.jpg" for n in range(3)]
TEXTS = "captions=captions,notes=notes"
SIZE = Image.open(io.BytesIO(JPEG)).size


def partners(random: Random) -> dict[str, bytes]:
    mask = random.choice(MASKS)
    found = {f"masks/{n}.png": mask for n in range(3)}
    found |= {f"captions/{n}.txt": f"gr\xfcn {n}".encode() for n in range(3)}
    notes = {"n": 1, "boxes": [[1, 2.5]], "o": {"x": "y"}}
    found |= {f"notes/{n}.json": json.dumps(notes).encode() for n in range(3)}
    depth = np.ones(SIZE[::-1], random.choice(["<f4", ">i2", "|b1"]))
    return found | {f"npy/{n}.npy": npy_of(depth) for n in range(3)}


def npy_of(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_damaged_partners(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(NAMES, JPEG))

    def attempt(number: int) -> bool:
        random = Random(number)
        files = partners(random)
        name = random.choice(list(files))
        match random.randrange(4):
            case 0:
                del files[name]
                (tmp_path / name).unlink(missing_ok=True)
            case 1:
                files[name] = IMAGES[random.choice([*IMAGES])][0]
            case 2 if name.endswith(".json"):
                files[name] = with_odd_keys(files[name], number)
            case _:
                files[name] = damaged(files[name], number)
        write(tmp_path, files)
        given = "auto" if number % 2 else f"mask=masks,npy=npy,{TEXTS}"
        resize = "8x6" if random.random() < 0.5 else ""
        options = ImagesOptions(pair=given, resize=resize)
        reading = read(ImagesSource(options), tmp_path)
        rows = {row["filename"]: row for row in reading.rows}
        aside = [each.path for each in reading.rejects if each.path in NAMES]
        assert sorted([*rows, *aside]) == NAMES
        for path, row in rows.items():
            stem = Path(path).stem
            for key, value in row.items():
                if key in ("captions", "notes"):
                    own = files[
                        f"{key}/{stem}{'.txt' if key == 'captions' else '.json'}"
                    ]
                    assert value.encode() == own
                    assert key == "captions" or json.loads(own) is not ...
                elif key == "npy":
                    sides = (8, 6) if resize else SIZE[::-1]
                    size = len(value) if isinstance(value, bytes) else np.size(value)
                    assert size > 0
                    assert size % np.prod(sides) == 0
                elif key in ("mask", "masks"):
                    found = Image.open(io.BytesIO(value))
                    assert found.size == ((6, 8) if resize else SIZE)
                    own = files[f"masks/{stem}.png"]
                    if value != own:  # a palette's indices, or of another size
                        assert found.getextrema()[0] <= found.getextrema()[1]
        assert all(each.reason.encode() for each in reading.rejects)
        return len(rows) > 0

    try_all(attempt)
