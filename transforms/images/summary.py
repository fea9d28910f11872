"""Describes images before and after a run: formats, folders, pixels.

One TensorFlow op decodes all images only if it does each. TFDS decodes JPEG, PNG and BMP
to arrays of one rank, but not GIF (which has frames), WebP and TIFF, nor every BMP. With
one of these among them, readers get the encoded bytes of every image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recordmill.schemas.feature_spec import Content, Kind, Schema
from recordmill.schemas.input_summary import InputWarning, SkippedFiles
from recordmill.schemas.ranges import RowIssue, TypeFlags
from recordmill.schemas.text import count, first_names
from recordmill.transforms.images.header import ImageHeader
from recordmill.transforms.images.pixel_rules import PixelRules
from recordmill.transforms.images.transform import FIRST_FRAME, NARROWED
from recordmill.transforms.inventory import Inventory

DECODABLE_ENDINGS = (".jpeg", ".jpg", ".png", ".bmp")
DECODABLE_FORMATS = frozenset({"jpeg", "png", "bmp"})

FACT = "readers get"
DECODED, ENCODED = "decoded images (TFDS)", "encoded bytes"
_HINT = (
    "readers get the encoded bytes of all images. Use `undecodable=reencode` to make "
    "PNGs of them, `undecodable=reject` to leave them out, or save them as JPEG or PNG"
)


def named_undecodable(images: Inventory) -> list[RowIssue]:
    """Returns the images whose ending is that of a format that TFDS does not decode."""
    others = (".gif", ".webp", ".tif", ".tiff")
    paths = images.where(images.ends_with(others)).paths.to_pylist()
    endings = ((path.rpartition(".")[2].lower(), path) for path in paths)
    return [
        RowIssue(UNDECODABLE, each.reason, each.files, each.example)
        for each in SkippedFiles.counted(endings)
    ]


def warn_undecodable(issues: Sequence[RowIssue]) -> list[InputWarning]:
    """Returns a warning if there are such formats, by the names or by the content."""
    if not issues:
        return []
    told = first_names(
        [f"{count(each.count, each.column)} such as {each.example}" for each in issues]
    )
    what = f"TFDS cannot decode these images: {told}; so {_HINT}"
    return [InputWarning("undecodable-images", what)]


def why_rejected(kind: str) -> str:
    """Returns why an image of a format that readers cannot decode is a reject."""
    return (
        f"{kind} is not decoded by TFDS (expected JPEG, PNG or plain BMP, because of "
        "`undecodable=reject`, or because the dataset has only these)"
    )


def observe(
    kinds: Sequence[tuple[str, ...]], paths: Sequence[str]
) -> tuple[RowIssue, ...]:
    """Returns the images that TFDS cannot decode, and those that were changed.

    The kinds of each are its format or variant, then what was changed.
    """
    return RowIssue.merged(
        (RowIssue(CHANGED if changes else UNDECODABLE, kind, 1, path, (*changes,)),)
        for (kind, *changes), path in zip(kinds, paths, strict=True)
        if changes or kind not in DECODABLE_FORMATS
    )


def decodable_in(schema: Schema) -> bool:
    """Tells whether readers of a dataset decode its images."""
    images = [each for each in schema.features if each.content is Content.IMAGE]
    return bool(images) and all(each.dtype != "bytes" for each in images)


# Other sources have columns of images that stay as they are.


def observe_images(
    images: Sequence[str],
    headers: Sequence[Mapping[str, ImageHeader]],
    names: Sequence[str],
) -> tuple[TypeFlags, tuple[RowIssue, ...]]:
    """Returns whether readers decode the images of each column, and which they do not.

    The headers are those of each row, by column, the names those of the rows.
    """
    issues = []
    for image in images:
        there = [n for n, each in enumerate(headers) if image in each]
        kinds = [(headers[n][image].kind,) for n in there]
        issues.append(observe(kinds, [names[n] for n in there]))
    return tuple(int(bool(each)) for each in issues), RowIssue.merged(issues)


def with_images(schema: Schema, images: Sequence[str], observed: TypeFlags) -> Schema:
    """Returns a schema in which some columns are images, given their type flags.

    That of a column is 1 if one of its images cannot be decoded, else 0.
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


def readers_get(schema: Schema) -> tuple[tuple[str, str], ...]:
    """Returns the fact of what readers get of the images, if there are any."""
    if not any(each.content is Content.IMAGE for each in schema.features):
        return ()
    return ((FACT, DECODED if decodable_in(schema) else ENCODED),)


def undecodable_in(headers: Mapping[str, ImageHeader], dataset: Schema | None) -> str:
    """Returns why the images of a row cannot be appended to those of a dataset, or ""."""
    for feature in dataset.features if dataset else ():
        if feature.name in headers and feature.dtype != "bytes":
            if (kind := headers[feature.name].kind) not in DECODABLE_FORMATS:
                return f"{feature.name}: {why_rejected(kind)}"
    return ""


UNDECODABLE, CHANGED, CROPPED = "undecodable", "changed", "cropped"  # codes of issues
PIXELS_FACT, CHANGED_FACT = "pixels", "changed images"
MADE_PNG = "re-encoded as PNG"
_LOSSES = frozenset({FIRST_FRAME, NARROWED})
_CHANNELS = {1: "gray", 3: "three channels", 4: "four channels"}


def rules_told(rules: PixelRules, *, reencodes: bool) -> tuple[tuple[str, str], ...]:
    """Returns the fact of what becomes of the pixels, and of what makes it."""

    def sides(found: tuple[int, int]) -> str:
        return f"{found[0]:,} x {found[1]:,}"

    size, resize = "", rules.resize
    if resize is not None:
        size = f"longer side {resize.longer:,}"
        if resize.shorter:
            size = f"shorter side {resize.shorter:,}"
        if resize.sides is not None:
            size = f"scaled to {sides(resize.sides)}"
        decoded = "" if resize.draft > 1 else ", JPEGs decoded at the nearest scale"
        size += f" (bicubic{decoded})"
    jpeg = f"JPEG of quality {rules.quality}"
    webp = "lossless WebP" if rules.lossless else f"WebP of quality {rules.quality}"
    own = "as PNG" if rules.channels == 4 else f"JPEG as {jpeg}, others as PNG"
    encoding = {
        "raw": "uint8 arrays",
        "png": "as PNG",
        "webp": f"as {webp}",
        "jpeg": f"as {jpeg}",
        "own": own,
    }
    steps = (
        "turned as EXIF says" if rules.turns else "",
        size,
        f"cropped to {sides(rules.crop)}" if rules.crop else "",
        f"padded to {sides(rules.pad)}" if rules.pad else "",
        _CHANNELS[rules.channels] if rules.channels else "",
        "what TFDS cannot decode as PNG" if reencodes else "",
        encoding[rules.form] if rules.transforms_all else "others as they are",
    )
    return ((PIXELS_FACT, f"{', '.join(filter(None, steps))}; by {_versions()}"),)


def _versions() -> str:
    """Returns the versions of what decodes and encodes; with others bytes may differ."""
    import PIL  # 50 ms with its features, for those who decode
    from PIL import features

    turbo = features.version("libjpeg_turbo")
    jpeg = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version('jpg')}"
    return f"Pillow {PIL.__version__}, {jpeg}"


def changes_told(changed: Sequence[RowIssue]) -> tuple[tuple[str, str], ...]:
    """Returns the fact of how many images were changed how, beside their size."""
    counts: Counter[str] = Counter()
    for each in changed:
        counts.update(dict.fromkeys(each.changes, each.count))
    found = sorted(counts.items(), key=lambda change: (-change[1], change[0]))
    told = [f"{rows:,} {change}" for change, rows in found]
    return ((CHANGED_FACT, first_names(told)),) if told else ()


def warnings_of(changed: Sequence[RowIssue]) -> tuple[InputWarning, ...]:
    """Returns the warning of images of which a part is lost."""
    lost = [each for each in changed if _LOSSES.intersection(each.changes)]
    if not lost:
        return ()
    told = [
        f"{count(each.count, 'image')} ({', '.join((each.column, *each.changes))}) such "
        f"as {each.example}"
        for each in lost
    ]
    changes = {change for each in lost for change in each.changes}
    hint = ""
    if FIRST_FRAME in changes:
        hint = ". Use `animated=reject` to leave out images of several frames"
    if MADE_PNG in changes:
        hint += (
            ". Use `undecodable=keep` to keep their files as they are, or "
            "`undecodable=reject` to leave them out"
        )
    what = f"not all of these images is in the records: {first_names(told)}{hint}"
    return (InputWarning("partial-images", what),)
