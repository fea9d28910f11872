from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_dataset import SCHEMA, write_dataset

from recordmill.schemas.errors import OutputError, SchemaError, UsageError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    compare_schemas,
    find_range_violations,
)
from recordmill.transforms.dataset.files import load_expected

INT = FeatureSpec("x", Kind.INT64)
TENSOR = FeatureSpec("x", Kind.BYTES, dtype="int8", content=Content.TENSOR)
LABEL = FeatureSpec("x", Kind.INT64, class_names=("cat", "dog"))
IMAGE = FeatureSpec(
    "x", Kind.BYTES, dtype="uint8", shape=(None,) * 3, content=Content.IMAGE
)


@pytest.mark.parametrize(
    ("expected", "found", "lines"),
    [
        (INT, INT, []),
        (INT, replace(INT, column="y"), []),  # where it comes from is no matter
        (INT, replace(INT, minimum=3), []),  # a rule, of which readers see nothing
        (replace(INT, optional=True), INT, []),  # always there: does no harm
        (INT, replace(INT, optional=True), ["is now optional: some examples lack it"]),
        (INT, FeatureSpec("x", Kind.FLOAT), ["stored as changed: was int64_list, is float_list", "dtype changed: was int64, is float32"]),
        (INT, replace(INT, dtype="int8"), ["dtype changed: was int64, is int8"]),
        (INT, replace(INT, shape=(2,)), ["shape changed: was scalar, is [2]"]),
        (replace(INT, shape=(None, 4)), replace(INT, shape=(3, 4)), ["shape changed: was [?, 4], is [3, 4]"]),
        (INT, replace(INT, is_sequence=True), ["moved: was in the context, is in the feature list"]),
        (replace(INT, name="o/x", shape=(None,)), replace(INT, name="o/x", shape=(None,), is_nested=True), ["nested changed: was False, is True"]),
        (TENSOR, replace(TENSOR, content=Content.ARRAY), ["content changed: was tensor, is array"]),
        # The size of images is a rule for them.
        (IMAGE, replace(IMAGE, shape=(32, 32, 3)), []),
        (replace(IMAGE, shape=(32, 32, 3)), IMAGE, ["shape changed: was [32, 32, 3], is [?, ?, ?]"]),
        # Class names.
        (INT, LABEL, []),
        (LABEL, INT, ["no longer has class names: were 'cat', 'dog'"]),
        (LABEL, replace(LABEL, class_names=("cat", "dog", "eel")), ["unknown classes: 'eel'"]),
        (LABEL, replace(LABEL, class_names=("cat",)), ["lost classes: 'dog'"]),
        (LABEL, replace(LABEL, class_names=("bee", "cat", "dog")), ["unknown classes: 'bee'", "class 0 changed: was 'cat', is 'bee'"]),
        (LABEL, replace(LABEL, class_names=("dog", "cat")), ["class 0 changed: was 'cat', is 'dog'"]),
        (LABEL, replace(LABEL, class_names=("cat", "dog", *"abcdefg")), ["unknown classes: 'a', 'b', 'c', 'd', 'e' and 2 more"]),
    ],
)  # fmt: skip
def test_differences_of_a_feature(
    expected: FeatureSpec, found: FeatureSpec, lines: list[str]
) -> None:
    assert compare_schemas(Schema((expected,)), Schema((found,))) == [
        f"feature {expected.name!r}: {line}" for line in lines
    ]


def test_new_and_lost_features() -> None:
    tags = FeatureSpec("tags", Kind.BYTES, dtype="string", shape=(None,), optional=True)
    tensor = replace(TENSOR, name="t", column="")
    assert compare_schemas(Schema((INT, tags)), Schema((INT, tensor))) == [
        "feature 't' is new: int8 scalar in bytes_list, a tensor",
        "feature 'tags' is missing: was string [?] in bytes_list or missing",
    ]


@pytest.mark.parametrize(
    ("bounds", "observed", "said"),
    [
        ((0, 10), (0, 10), None),  # both are inclusive
        ((None, None), (-9, 9), None),
        ((0, 10), (-1, 4), "values -1 to 4, expected 0 to 10"),
        ((0, 10), (0, 11), "values 0 to 11, expected 0 to 10"),
        ((0.5, None), (0.25, 0.25), "values 0.25, expected at least 0.5"),
        ((None, 1), (0, math.inf), "values 0 to inf, expected at most 1"),
        ((0, (1 << 63) - 1), (0, 1 << 63), "values 0 to 9223372036854775808, expected 0 to 9223372036854775807"),
    ],
)  # fmt: skip
def test_range_violations(bounds: Any, observed: Any, said: str | None) -> None:
    schema = Schema((replace(INT, minimum=bounds[0], maximum=bounds[1]),))
    lines = find_range_violations(schema, {"x": observed, "other": (-99, 99)})
    assert lines == ([f"feature 'x': {said}"] if said else [])
    assert find_range_violations(schema, {}) == []


def test_what_is_expected(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    for path in (tmp_path / "zoo", tmp_path / "zoo" / "manifest.json"):
        assert load_expected(str(path)) == SCHEMA
    (tmp_path / "s.yaml").write_text("features:\n  x: {classes: [cat, dog]}\n")
    assert load_expected(str(tmp_path / "s.yaml")) == Schema((LABEL,))
    assert load_expected(f"file://{tmp_path}/s.yaml") == Schema((LABEL,))


def test_nothing_that_could_be_expected(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    (tmp_path / "zoo" / "image.class.label.labels.txt").unlink()
    (tmp_path / "empty").mkdir()
    (tmp_path / "s.yaml").write_text("features: 3\n")
    for name, kind, message in (
        ("zoo", OutputError, r"zoo: image.class.label.labels.txt is missing "),
        (
            "none",
            UsageError,
            r"none: cannot be read: .*takes a schema file or a dataset",
        ),
        ("empty", OutputError, r"no manifest.json, so this is not a finish"),
        ("s.yaml", SchemaError, r"s.yaml: line 1: features: expected a mapp"),
    ):
        with pytest.raises(kind, match=message):
            load_expected(str(tmp_path / name))
