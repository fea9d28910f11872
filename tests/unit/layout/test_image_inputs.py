"""`make image` passed with the Dockerfile, the locks and the packaging that are here."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[3]
OF_THE_PAGE_ALONE = {"LICENSE", "README.md"}


def test_the_image_was_built_from_these_files() -> None:
    lines = (ROOT / "deploy" / "image.sha256").read_text().splitlines()
    built = {name: digest for digest, name in map(str.split, lines)}
    changed = [
        name
        for name, digest in built.items()
        if sha256((ROOT / name).read_bytes()).hexdigest() != digest
    ]
    assert not changed, f"the image may differ by {changed}: run `make image`, commit"
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = " ".join(re.findall(r"^COPY ([^-].*) \S+$", text, re.MULTILINE)).split()
    files = {name for name in copied if (ROOT / name).is_file()}
    assert files - OF_THE_PAGE_ALONE < built.keys()
