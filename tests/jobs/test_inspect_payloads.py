"""What inspect shows of tensors, ragged features, and records that are no examples."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_dataset import IMAGES, write_parts

from recordmill.beam_jobs.cli.main import run
from recordmill.beam_jobs.report.dataset_report import show_inspect
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.decode.tf_code import parsing_spec

LABEL = FeatureSpec("label", Kind.INT64)
TOKENS = FeatureSpec("tokens", Kind.INT64, shape=(None, None))
GRID = FeatureSpec(
    "grid", Kind.BYTES, dtype="int8", shape=(None, 2), content=Content.TENSOR
)
WORDS = FeatureSpec(
    "words", Kind.BYTES, dtype="string", shape=(None,), content=Content.TENSOR
)
FRAMES = FeatureSpec("frames", Kind.FLOAT, shape=(2,), sequence=True, optional=True)
ROWS: dict[str, list[Any]] = {
    "label": [7, 8],
    "tokens": [[[1, 2], [], [3]], [[n] for n in range(9)]],
    "grid": [[1, -2, 3, 4], list(range(20))],
    "words": [["ß", "a\nb"], []],
    "frames": [[[0.5, 1.5]] * 5, None],
}


def write(folder: Path, features: list[FeatureSpec], payload: Payload) -> Schema:
    """A dataset with one shard of ROWS; gives its schema."""
    schema = Schema(tuple(features))
    batch = pa.RecordBatch.from_pydict({f.name: ROWS[f.name] for f in features})
    write_parts(folder, schema, {"train": [batch]}, payload)
    assert verify_dataset(str(folder), deep=True).ok
    return schema


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the tables, with single spaces."""
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_inspect(str(folder))
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


def facts(folder: Path) -> list[Any]:
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_inspect(str(folder), as_json=True)
    examples: list[Any] = json.loads(stream.getvalue())["examples"]
    return examples


def test_tensors_and_ragged_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "zoo", [LABEL, TOKENS, GRID, WORDS], "example")
    lines = shown(tmp_path / "zoo", monkeypatch)
    for line in [
        "grid bytes_list int8 ?x2 tensor no",
        "tokens int64_list int64 ?x? number no",
        "grid int8 tensor 2x2 [1, -2, 3, 4]",
        "grid int8 tensor 10x2 [0, 1, 2, 3, 4, 5, ...]",
        "tokens [[1, 2], [], [3]]",
        "tokens [[0], [1], [2], [3], [4], [5], ... 9 in all]",
        r'words string tensor 2 ["ß", "a\nb"]',
        "words string tensor 0 []",
    ]:
        assert line in lines
    assert not any("ragged_flat" in line for line in lines)
    first = facts(tmp_path / "zoo")[0]["features"]
    assert first == {
        "grid": {
            "tensor": "int8",
            "shape": [2, 2],
            "first": [1, -2, 3, 4],
            "bytes": 18,
        },
        "label": 7,
        "tokens": [[1, 2], [], [3]],
        "words": {
            "tensor": "string",
            "shape": [2],
            "first": ["ß", "a\nb"],
            "bytes": 17,
        },
    }


def test_sequence_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "zoo", [LABEL, FRAMES], "sequence_example")
    lines = shown(tmp_path / "zoo", monkeypatch)
    for line in [
        "frames float_list float32 steps of 2 number yes",
        "frames 5 steps: [0.5, 1.5], [0.5, 1.5], [0.5, 1.5], ...",
        "frames -",
        "label 7",
    ]:
        assert line in lines
    assert any("payload sequence_example, compression none" in line for line in lines)
    first, second = facts(tmp_path / "zoo")
    assert first["features"] == {"frames": [[0.5, 1.5]] * 5, "label": 7}
    assert second["features"] == {"label": 8}


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "zoo", [LABEL], "json")
    lines = shown(tmp_path / "zoo", monkeypatch)
    start = lines.index("train: record 0 of zoo-train.tfrecord-00000-of-00001")
    assert "".join(lines[start + 1 :]).startswith(
        '{"features": {"feature": {"label": {"int64List": {"value": ["7"]}}}}}'
    )
    assert facts(tmp_path / "zoo")[0]["json"] == {
        "features": {"feature": {"label": {"int64List": {"value": ["7"]}}}}
    }


@pytest.mark.parametrize(
    ("values", "content", "line"),
    [
        ([b"some text", b""], Content.VALUES, 'f "some text"'),
        ([b"\x1b[31m", b""], Content.VALUES, "f 1b5b33316d (5 B)"),
        ([b"\xff\0", b""], Content.VALUES, "f ff00 (2 B)"),
        ([IMAGES[1]] * 2, Content.IMAGE, f"f PNG 6x8x4, {len(IMAGES[1])} B"),
    ],
)
def test_raw(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: list[bytes],
    content: Content,
    line: str,
) -> None:
    feature = FeatureSpec("f", Kind.BYTES, content=content)
    if content is Content.IMAGE:
        feature = FeatureSpec("f", Kind.BYTES, dtype="uint8", content=content)
    monkeypatch.setitem(ROWS, "f", values)
    write(tmp_path / "zoo", [feature], "raw")
    assert line in shown(tmp_path / "zoo", monkeypatch)


@pytest.mark.parametrize("payload", ["example", "sequence_example", "json"])
def test_tensorflow_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], payload: Payload
) -> None:
    schema = write(tmp_path / "zoo", [LABEL], payload)
    assert run(["inspect", "--tf", str(tmp_path / "zoo")]) == 0
    code = capsys.readouterr().out
    assert parsing_spec(schema, payload) in code
    assert run(["inspect", "--tf", "--json", str(tmp_path / "zoo")]) == 0
    assert json.loads(capsys.readouterr().out) == {"tf": code}
