"""Features of every way to store every dtype, for the code that parses them."""

from __future__ import annotations

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "string", "bytes",
]  # fmt: skip
SHAPES: list[tuple[int | None, ...]] = [
    (), (3,), (2, 2), (0,), (None,), (None, 2), (2, None), (2, None, 3),
]  # fmt: skip
RAGGED: list[tuple[int | None, ...]] = [
    (None, None), (None, None, 2), (2, None, None), (None, 2, None, 2, 3),
]  # fmt: skip
STEPS: list[tuple[int | None, ...]] = [
    (), (3,), (2, 2), (None,), (None, 2), (2, None), (2, 3, None, 2),
]  # fmt: skip


def kinds_of(dtype: str) -> list[Kind]:
    if dtype in ("string", "bytes"):
        return [Kind.BYTES]
    return [Kind.FLOAT] if dtype.startswith("float") else [Kind.INT64, Kind.FLOAT]


def every_feature(*, sequence: bool) -> list[FeatureSpec]:
    """Features of every way to store every dtype, with every other shape.

    The optional ones have the shapes that the others have not: each of all pairs of
    dtype and shape takes TensorFlow a tenth of a second.
    """
    found = []
    shapes = STEPS if sequence else [*SHAPES, *RAGGED]
    for place, dtype in enumerate(DTYPES):
        for index, shape in enumerate(shapes):
            optional = bool((place + index) % 2)
            ways = [(kind, Content.VALUES) for kind in kinds_of(dtype)]
            ways.append((Kind.BYTES, Content.TENSOR))
            if dtype not in ("string", "bytes") and shape.count(None) < 2:
                ways.append((Kind.BYTES, Content.ARRAY))
            found += [
                FeatureSpec(
                    f"{dtype}{list(shape)} {kind} {content} {optional}",
                    kind,
                    dtype=dtype,
                    shape=shape,
                    content=content,
                    optional=optional,
                    is_sequence=sequence,
                )
                for kind, content in ways
            ]
    return found


def several_unknown() -> list[FeatureSpec]:
    """What only tensors can be as steps."""
    return [
        FeatureSpec(
            f"{shape}",
            Kind.BYTES,
            dtype="int16",
            shape=shape,
            content=Content.TENSOR,
            is_sequence=True,
        )
        for shape in [(None, None), (None, 2, None), (3, None, None, 2)]
    ]


def images(*, sequence: bool) -> list[FeatureSpec]:
    return [
        FeatureSpec(
            f"image {dtype} {optional}",
            Kind.BYTES,
            dtype=dtype,
            shape=(None, None, 3),
            content=Content.IMAGE,
            optional=optional,
            is_sequence=sequence,
        )
        for dtype in ("uint8", "uint16")
        for optional in (False, True)
    ]


def labels() -> list[FeatureSpec]:
    names = tuple("abcdefgh")
    return [
        FeatureSpec("label", Kind.INT64, class_names=names),
        FeatureSpec("label?", Kind.INT64, class_names=names, optional=True),
        FeatureSpec(
            "labels?", Kind.INT64, class_names=names, shape=(2,), optional=True
        ),
        FeatureSpec('say "it\'s"\n/\\ ß', Kind.INT64),
    ]
