"""What the structural check accepts, TensorFlow decodes; what it refuses, not."""

from __future__ import annotations

import base64
from random import Random

from interop_tools import ask
from pixel_zoo import IMAGES, TENSORFLOW_CANNOT_DECODE

from recordmill.transforms.images.header import (
    ImageHeaderError,
    check_structure,
    read_header,
)


def is_whole(data: bytes) -> bool:
    try:
        check_structure(data, read_header(data))
    except ImageHeaderError:
        return False
    return True


def test_cut_images() -> None:
    random = Random(1)
    cut: dict[str, bytes] = {}
    for name, (data, _) in IMAGES.items():
        # Of animated WebP TensorFlow may abort; others it never decodes.
        if name in TENSORFLOW_CANNOT_DECODE or name.endswith(".webp"):
            continue
        near_the_end = [len(data) - back for back in (0, 1, 2, 4, 5, 12, 13)]
        anywhere = [random.randrange(len(data)) for _ in range(5)]
        for length in {*near_the_end, *anywhere}:
            cut[f"{name}[:{length}]"] = data[:length]
    decoded = ask(
        *("answers.py", "images"),
        given=[base64.b64encode(data).decode() for data in cut.values()],
    )
    expected = dict(zip(cut, decoded, strict=True))
    assert {name: is_whole(data) for name, data in cut.items()} == expected
    assert sum(decoded) > 50
