"""Tables that the package `datasets` wrote become what `datasets` itself reads."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import chain
from pathlib import Path

import pytest
from job_tools import command, examples_of
from reader_tools import run_reader

WRITE = """
import json, sys
from base64 import b64encode
from pathlib import Path
import datasets
import numpy as np
from PIL import Image

folder = Path(sys.argv[1])
label = datasets.ClassLabel(names=["cat", "dog"])
features = datasets.Features({
    "image": datasets.Image(), "label": label, "tags": datasets.List(label),
    "grid": datasets.Array2D((2, 3), "float32"), "text": datasets.Value("string"),
    "objects": {"box": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
                "kind": datasets.List(label)},
})
draw = np.random.default_rng(1)
rows = [
    {"image": Image.fromarray(draw.integers(0, 256, (3 + i, 4, 3), np.uint8)),
     "label": i % 3 - 1, "tags": [0, 1][: i % 3], "grid": draw.random((2, 3)).tolist(),
     "text": f"row {i}", "objects": {"box": [[0, 0, 1, i]] * (i % 3), "kind": [1] * (i % 3)}}
    for i in range(12)
]
made = datasets.Dataset.from_list(rows, features=features)
made.to_parquet(folder / "parquet" / "all.parquet")
made.save_to_disk(folder / "arrow")
# A cache of `map` beside them: the rows again.
datasets.load_from_disk(folder / "arrow").map(lambda row: row, cache_file_name=str(folder / "arrow" / "cache-1.arrow"))
read = datasets.load_from_disk(folder / "arrow").cast_column("image", datasets.Image(decode=False))
for row in read:
    row["image"] = b64encode(row["image"]["bytes"]).decode()
    print(json.dumps(row))
"""


@pytest.mark.parametrize("source", ["parquet", "arrow"])
def test_rows_are_those_that_datasets_reads(tmp_path: Path, source: str) -> None:
    (tmp_path / "parquet").mkdir()
    wrote = run_reader(tmp_path, "-c", WRITE, tmp_path)
    expected = {row["text"]: row for row in map(json.loads, wrote.splitlines())}
    assert len(expected) == 12
    out = tmp_path / "out"
    ran = command("convert", source, tmp_path / source, out)
    assert ran.status == 0, ran.err
    for name in ("label", "tags", "objects.kind"):
        assert (out / f"{name}.labels.txt").read_text() == "cat\ndog\n"
    found = 0
    for example in examples_of(out):
        has = example.features.feature
        row = expected[has["text"].bytes_list.value[0].decode()]
        assert b64encode(has["image"].bytes_list.value[0]).decode() == row["image"]
        assert has["label"].int64_list.value[:] == [row["label"]]
        assert has["tags"].int64_list.value[:] == row["tags"]
        assert has["grid"].float_list.value[:] == [*chain(*row["grid"])]
        assert has["objects/kind"].int64_list.value[:] == row["objects"]["kind"]
        assert has["objects/box"].float_list.value[:] == [
            *chain(*row["objects"]["box"])
        ]
        found += 1
    assert found == 12
