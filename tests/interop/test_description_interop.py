"""TFDS reads what a dataset says of itself."""

from __future__ import annotations

import json
from pathlib import Path

from interop_tools import run_in_interop
from job_tools import IRIS, convert, recordmill

READ = """
import json, sys
import tensorflow_datasets as tfds

for folder in sys.argv[1:]:
    info = tfds.builder_from_directory(folder).info
    print(json.dumps([info.description, info.citation, info.homepage,
                      info.redistribution_info.license]))
    assert len(tfds.builder_from_directory(folder).as_dataset(split="train")) == 150
"""


def test_tfds_shows_the_texts(tmp_path: Path) -> None:
    out, zipped = tmp_path / "out", tmp_path / "zipped"
    texts = ["--description", "Flowers\n\nof café", "--citation", "@misc{iris}"]
    texts += ["--homepage", "https://example.org/iris", "--license", "MIT", "--card"]
    convert("csv", IRIS, out, "--license", "CC0-1.0")
    convert("csv", IRIS, out, *texts)  # over the same shards
    convert("csv", IRIS, zipped, *texts, "--compression", "gzip")
    exported = tmp_path / "exported"
    assert recordmill("export", "tfds", zipped, exported).status == 0
    expected = ["Flowers\n\nof café", "@misc{iris}", "https://example.org/iris", "MIT"]
    found = run_in_interop(tmp_path, "-c", READ, out, exported)
    assert [json.loads(line) for line in found.splitlines()] == [expected, expected]
