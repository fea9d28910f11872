"""Describes the images of a run for its report: formats, folders, pixels.

One TensorFlow op decodes the images of a dataset only if it supports all of them. TFDS
decodes JPEG, PNG and BMP to arrays of one rank, but not GIF (which has frames), WebP,
TIFF and some BMPs. If a dataset has one of these, readers get the encoded bytes of every
image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recordmill.schemas.feature_spec import Content, Kind, Schema
from recordmill.schemas.input_summary import InputWarning, SkippedFiles
from recordmill.schemas.ranges import RowIssue, TypeFlags
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.images.header import ImageHeader
from recordmill.transforms.images.pixel_rules import PixelRules
from recordmill.transforms.images.transform import FIRST_FRAME, NARROWED
from recordmill.transforms.inventory import Inventory

DECODABLE_ENDINGS = (".jpeg", ".jpg", ".png", ".bmp")
DECODABLE_FORMATS = frozenset({"jpeg", "png", "bmp"})

DECODING_ENTRY = "images when read"
DECODED, ENCODED = "decoded by TFDS", "encoded bytes"
_HINT = (
    "readers get the encoded bytes of all images. Use `undecodable=reencode` to "
    "convert them to PNG, `undecodable=reject` to leave them out, or save them as JPEG "
    "or PNG"
)


def named_undecodable(images: Inventory) -> list[RowIssue]:
    """Returns issues for images with the ending of a format that TFDS cannot decode."""
    undecodable_endings = (".gif", ".webp", ".tif", ".tiff")
    paths = images.filter(images.ends_with(undecodable_endings)).paths.to_pylist()
    endings = ((path.rpartition(".")[2].lower(), path) for path in paths)
    return [
        RowIssue(
            UNDECODABLE,
            skipped_files.reason,
            skipped_files.num_files,
            skipped_files.example,
        )
        for skipped_files in SkippedFiles.count_by_reason(endings)
    ]


def warn_undecodable(issues: Sequence[RowIssue]) -> list[InputWarning]:
    """Returns a warning if there are issues of undecodable images, else []."""
    if not issues:
        return []
    examples_text = format_names(
        [
            f"{format_count(issue.count, issue.column)} such as {issue.example}"
            for issue in issues
        ]
    )
    message = f"TFDS cannot decode these images: {examples_text}; therefore {_HINT}"
    return [InputWarning("undecodable-images", message)]


def undecodable_reason(kind: str) -> str:
    """Returns the reason why an image in an undecodable format is rejected."""
    return (
        f"{kind} cannot be decoded by TFDS (expected JPEG, PNG or plain BMP, because "
        "of `undecodable=reject`, or because the dataset has only these)"
    )


def image_issues(
    kinds: Sequence[tuple[str, ...]], paths: Sequence[str]
) -> tuple[RowIssue, ...]:
    """Returns issues for images that TFDS cannot decode, and for changed images.

    `kinds` has, for each image, its format or variant, then its changes.
    """
    return RowIssue.merge_issues(
        (RowIssue(CHANGED if changes else UNDECODABLE, kind, 1, path, (*changes,)),)
        for (kind, *changes), path in zip(kinds, paths, strict=True)
        if changes or kind not in DECODABLE_FORMATS
    )


def has_decodable_images(schema: Schema) -> bool:
    """Checks whether readers of a dataset decode its images."""
    images = [
        feature for feature in schema.features if feature.content is Content.IMAGE
    ]
    return bool(images) and all(feature.dtype != "bytes" for feature in images)


# Other sources have image columns that are stored unchanged.


def observe_images(
    images: Sequence[str],
    headers: Sequence[Mapping[str, ImageHeader]],
    names: Sequence[str],
) -> tuple[TypeFlags, tuple[RowIssue, ...]]:
    """Returns flags of columns with undecodable images, and issues for these images.

    A flag is 1 if readers cannot decode all images of the column.

    Args:
      images: the image columns.
      headers: the headers of each row, by column.
      names: the name of each row.
    """
    issues = []
    for image in images:
        row_indices = [
            n for n, row_headers in enumerate(headers) if image in row_headers
        ]
        kinds = [(headers[n][image].kind,) for n in row_indices]
        issues.append(image_issues(kinds, [names[n] for n in row_indices]))
    return tuple(
        int(bool(column_issues)) for column_issues in issues
    ), RowIssue.merge_issues(issues)


def with_images(schema: Schema, images: Sequence[str], observed: TypeFlags) -> Schema:
    """Returns a schema in which some columns are images, given their type flags.

    The flag of a column is 1 if one of its images cannot be decoded, else 0.
    """
    flags = dict(zip(images, observed, strict=False))
    features = []
    for feature in schema.features:
        if feature.column in images:
            by_name = feature.column.endswith(("webp", "gif"))
            decodable = not flags.get(feature.column, by_name)
            feature = replace(
                feature,
                kind=Kind.BYTES,
                dtype="uint8" if decodable else "bytes",
                shape=(None, None, None) if decodable else (),
                content=Content.IMAGE,
            )
        features.append(feature)
    return Schema(tuple(features))


def decoding_report(schema: Schema) -> tuple[tuple[str, str], ...]:
    """Returns the report entry for the form in which readers get images, if any."""
    if not any(feature.content is Content.IMAGE for feature in schema.features):
        return ()
    return ((DECODING_ENTRY, DECODED if has_decodable_images(schema) else ENCODED),)


def append_problem(headers: Mapping[str, ImageHeader], dataset: Schema | None) -> str:
    """Returns the reason why a row's images cannot be appended to a dataset, or ""."""
    for feature in dataset.features if dataset else ():
        if feature.name in headers and feature.dtype != "bytes":
            if (kind := headers[feature.name].kind) not in DECODABLE_FORMATS:
                return f"{feature.name}: {undecodable_reason(kind)}"
    return ""


UNDECODABLE, CHANGED, CROPPED = "undecodable", "changed", "cropped"  # codes of issues
PIXELS_ENTRY, CHANGED_ENTRY = "pixels", "changed images"
MADE_PNG = "re-encoded as PNG"
_LOSSES = frozenset({FIRST_FRAME, NARROWED})
_CHANNELS = {1: "gray", 3: "three channels", 4: "four channels"}


def pixel_rules_report(
    rules: PixelRules, *, reencodes: bool
) -> tuple[tuple[str, str], ...]:
    """Returns the report entry for the transformations of pixels and their libraries."""

    def sides(height_and_width: tuple[int, int]) -> str:
        return f"{height_and_width[0]:,} x {height_and_width[1]:,}"

    size, resize = "", rules.resize
    if resize is not None:
        size = f"longer side {resize.longer:,}"
        if resize.shorter:
            size = f"shorter side {resize.shorter:,}"
        if resize.sides is not None:
            size = f"scaled to {sides(resize.sides)}"
        decoded = (
            ""
            if resize.min_decoded_factor > 1
            else ", JPEGs decoded at the nearest scale"
        )
        size += f" (bicubic{decoded})"
    jpeg = f"JPEG of quality {rules.quality}"
    webp = "lossless WebP" if rules.is_lossless else f"WebP of quality {rules.quality}"
    own_encoding = "as PNG" if rules.channels == 4 else f"JPEG as {jpeg}, others as PNG"
    encoding = {
        "raw": "uint8 arrays",
        "png": "as PNG",
        "webp": f"as {webp}",
        "jpeg": f"as {jpeg}",
        "own": own_encoding,
    }
    steps = (
        "rotated according to EXIF" if rules.turns else "",
        size,
        f"cropped to {sides(rules.crop)}" if rules.crop else "",
        f"padded to {sides(rules.pad)}" if rules.pad else "",
        _CHANNELS[rules.channels] if rules.channels else "",
        "images that TFDS cannot decode as PNG" if reencodes else "",
        encoding[rules.encoding] if rules.transforms_all else "others unchanged",
    )
    return ((PIXELS_ENTRY, f"{', '.join(filter(None, steps))}; with {_versions()}"),)


def _versions() -> str:
    """Returns the versions of the image libraries, on which the written bytes depend."""
    import PIL  # 50 ms with its features, only if images are decoded
    from PIL import features

    turbo = features.version("libjpeg_turbo")
    jpeg = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version('jpg')}"
    return f"Pillow {PIL.__version__}, {jpeg}"


def changes_report(changed: Sequence[RowIssue]) -> tuple[tuple[str, str], ...]:
    """Returns the report entry with the number of images for each change."""
    counts: Counter[str] = Counter()
    for issue in changed:
        counts.update(dict.fromkeys(issue.changes, issue.count))
    sorted_counts = sorted(counts.items(), key=lambda change: (-change[1], change[0]))
    change_texts = [f"{rows:,} {change}" for change, rows in sorted_counts]
    return ((CHANGED_ENTRY, format_names(change_texts)),) if change_texts else ()


def partial_image_warnings(changed: Sequence[RowIssue]) -> tuple[InputWarning, ...]:
    """Returns a warning about images of which a part is lost."""
    partial_images = [issue for issue in changed if _LOSSES.intersection(issue.changes)]
    if not partial_images:
        return ()
    image_texts = [
        f"{format_count(issue.count, 'image')} ({', '.join((issue.column, *issue.changes))}) such "
        f"as {issue.example}"
        for issue in partial_images
    ]
    changes = {change for issue in partial_images for change in issue.changes}
    hint = ""
    if FIRST_FRAME in changes:
        hint = ". Use `animated=reject` to leave out images of several frames"
    if MADE_PNG in changes:
        hint += (
            ". Use `undecodable=keep` to keep their files unchanged, or "
            "`undecodable=reject` to leave them out"
        )
    message = f"these images are stored only in part: {format_names(image_texts)}{hint}"
    return (InputWarning("partial-images", message),)
