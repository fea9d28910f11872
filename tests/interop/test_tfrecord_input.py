"""A dataset that TFDS wrote, with new shards: TFDS reads the same rows from it."""

from __future__ import annotations

from pathlib import Path

from interop_tools import ask
from job_tools import convert


def test_tfds_reads_the_same_rows_after_a_new_order(tmp_path: Path) -> None:
    """Kept and decoded; and what TensorFlow has packed is read."""
    (old,) = ask("rewritten_tfds.py", "write", tmp_path)
    kept, decoded = tmp_path / "kept", tmp_path / "decoded"
    ran = convert("tfrecord", old, kept, "--shards", 2)
    assert "15 of 15 as in features.json" in ran.err
    assert "; nested features are named by their path" in ran.err
    assert "; only the numbers are kept for BBoxFeature (box, objects/bbox)" in ran.err
    assert "; only the numbers are kept for Audio (sound)" in ran.err
    convert("tfrecord", old, decoded, "--records", "decode")
    before, *after = ask("rewritten_tfds.py", "read", old, kept, decoded)
    assert before["rows"].keys() == {"train", "test"}
    assert after == [before, before]
    for kind in ("GZIP", "ZLIB"):
        ran = convert("tfrecord", tmp_path / f"{kind}.tfrecord", tmp_path / kind)
        assert f"compression: {kind.lower()}: 1 file" in ran.err + ran.out
        assert "40 records" in ran.err + ran.out
