"""Declares the options of images, and the input format itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import SPLIT_PATTERN
from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.images.pixel_rules import (
    PixelRules,
    parse_pad,
    parse_reencode,
    parse_resize,
    parse_sides,
)
from recordmill.transforms.images.structure import MAX_PIXELS, CheckLevel
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source
    from recordmill.transforms.sources.images.source import ImagesSource


TableRows = Literal["picture", "object"]
Unlisted = Literal["reject", "leave_out"]


def _as_text(value: Any) -> Any:
    """Takes a list of texts, as YAML has them, for one; and a mapping for such a list."""
    if isinstance(value, dict):
        value = [f"{name}={path}" for name, path in value.items()]
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value


def by_split(text: str) -> list[tuple[str, str]]:
    """Returns (split, name of a file) of each part; a part without "=" has no split.

    >>> by_split("train=a.csv,b.csv")
    [('train', 'a.csv'), ('', 'b.csv')]
    """
    found = []
    for part in text.split(","):
        split, mark, name = part.partition("=")
        found.append((split, name) if mark else ("", part))
    return [(split.strip(), name.strip()) for split, name in found if name.strip()]


def _tables(text: str) -> str:
    for split, _ in by_split(text):
        if split and not SPLIT_PATTERN.fullmatch(split):
            raise ValueError(
                f"expected SPLIT=FILE with a split of letters, digits, '_' and '-', found "
                f"{split!r}"
            )
    return text


def _lists(text: str) -> str:
    for split, name in by_split(_tables(text)):
        if not split:
            raise ValueError(
                f"expected SPLIT=FILE, such as train=train.txt, found {name!r}"
            )
    return text


def _pattern(text: str) -> str:
    try:
        found = re.compile(text)
    except re.error as error:
        raise ValueError(
            f"expected a regular expression of Python, found {text!r}: {error}"
        ) from None
    if text and not found.groupindex:
        raise ValueError(
            "expected a regular expression with named groups, such as "
            f"(?P<label>[a-z]+)_.*, found {text!r}"
        )
    return text


_FILES = BeforeValidator(_as_text, json_schema_input_type=str | list[str])


class LabelOptions(SourceOptions):
    """Options of what is said of pictures in other places than the folders' names."""

    label_table: Annotated[str, _FILES, AfterValidator(_tables)] = Field(
        "",
        description="CSV, TSV or JSON Lines with a row for each picture: its path, its "
        "label, and columns that become features; a path below the input folder, or like "
        "those of inputs; train=a.csv,test=b.csv for a table of each split",
    )
    path_column: str = Field(
        "auto",
        description="column of `label_table` with the picture's path; auto: path, file, "
        "filename, image and the like",
    )
    label_column: str = Field(
        "auto",
        description="column of `label_table` with the label; auto: label, class, category "
        "and the like; none: no such column",
    )
    table_split_column: str = Field(
        "auto",
        description="column of `label_table` with the split; auto: split, if it is there "
        "and nothing else says the splits; none: no such column",
    )
    table_rows: TableRows = Field(
        "picture",
        description="what a row of `label_table` is of: a picture, or an object in one, "
        "such as a box; the rows of a picture then become lists, one for each column",
    )
    label_separator: str = Field(
        "",
        description="what stands between the labels of a picture that has several, such "
        "as | or a blank; lists of JSON Lines need none",
    )
    label_pattern: Annotated[str, AfterValidator(_pattern)] = Field(
        "",
        description="regular expression for the names of the pictures (with / in it, for "
        "their paths below the input folder); its groups label and split are these, "
        "others are features: (?P<label>[a-z]+)_(?P<id>\\d+)\\.jpg",
    )
    label_map: str = Field(
        "",
        description="file of the classes in their order: a name a line, or CSV with the "
        "columns id,name",
    )
    split_lists: Annotated[str, _FILES, AfterValidator(_lists)] = Field(
        "",
        description="files with the path of a picture in each line, which is in that "
        "split: train=train.txt,val=val.txt",
    )
    unlisted: Unlisted = Field(
        "reject",
        description="what becomes of pictures that `label_table`, `label_pattern` or "
        "`split_lists` do not name: rejects, or left out and counted",
    )


Orientation = Literal["auto", "keep", "apply"]
Animated = Literal["first", "reject"]
Channels = Literal["keep", "1", "3", "4"]
PixelForm = Literal["encoded", "raw"]


def _read_by(parse: Callable[[str], Any]) -> AfterValidator:
    """Returns a validator of a text that is empty or can be parsed."""

    def validate(text: str) -> str:
        if text:
            parse(text)
        return text

    return AfterValidator(validate)


def _number_as_text(value: Any) -> Any:
    """Takes the number 3, as YAML has it, for its text."""
    return str(value) if type(value) is int else value


class PixelOptions(SourceOptions):
    """Options of what becomes of the pixels of pictures."""

    resize: Annotated[str, _read_by(parse_resize)] = Field(
        "",
        description="size that pictures are scaled to: height x width (224x224), or one "
        "side with the other in proportion (shorter=256, longer=512)",
    )
    crop: Annotated[str, _read_by(parse_sides)] = Field(
        "",
        description="height x width that is kept of the middle, after `resize` (224x224)",
    )
    pad: Annotated[str, _read_by(parse_pad)] = Field(
        "",
        description="height x width that pictures are put into the middle of, after "
        "`resize`, with samples of 0 or another value around them (224x224, 224x224:255)",
    )
    channels: Annotated[
        Channels,
        BeforeValidator(_number_as_text, json_schema_input_type=str | int),
    ] = Field(
        "keep",
        description="1 gray, 3 colours, 4 colours and alpha; keep: as each picture has "
        "them",
    )
    orientation: Orientation = Field(
        "auto",
        description="whether pictures are turned as their EXIF data say; auto: only if "
        "another option makes them anew, as EXIF data are left out then",
    )
    animated: Animated = Field(
        "first",
        description="pictures of several frames, where pictures are made anew: the "
        "first frame is taken, or they are rejected; reject alone rejects them too",
    )
    reencode: Annotated[str, _read_by(parse_reencode)] = Field(
        "",
        description="encode all pictures anew: jpeg, jpeg:quality=92, png, webp, "
        "webp:quality=80, webp:lossless; without it what must be made anew stays JPEG, "
        "or becomes PNG",
    )
    pixels: PixelForm = Field(
        "encoded",
        description="raw: uint8 arrays of the pixels in place of picture files",
    )


def pixel_rules(options: PixelOptions, undecodable: str) -> PixelRules | None:
    """Returns what the options say, or None if all pictures stay as they are.

    Args:
      options: of the job.
      undecodable: what becomes of pictures that TFDS cannot decode.

    Raises:
      UsageError: options exclude each other.
    """
    raw = options.pixels == "raw"
    anew = [
        name
        for name, is_given in (
            ("resize", options.resize),
            ("crop", options.crop),
            ("pad", options.pad),
            ("channels", options.channels != "keep"),
            ("reencode", options.reencode),
            ("pixels", raw),
        )
        if is_given
    ]
    turns = options.orientation == "apply" or (
        options.orientation == "auto" and bool(anew)
    )
    rejects = options.animated == "reject"
    if not anew and not turns and not rejects:
        # What TFDS cannot decode becomes PNG with all that its samples have.
        return PixelRules(keeps_samples=True) if undecodable == "reencode" else None
    _check(options, raw)
    if undecodable != "keep" and anew:
        raise UsageError(
            f"`undecodable={undecodable}` and `{anew[0]}` exclude each other, as all "
            "pictures are made anew. Leave out `undecodable`"
        )
    form, quality, lossless = parse_reencode(options.reencode or "jpeg")
    pad, pad_value = parse_pad(options.pad) if options.pad else (None, 0)
    channels = None if options.channels == "keep" else int(options.channels)
    return PixelRules(
        rejects_frames=rejects,
        turns=turns,
        resize=parse_resize(options.resize) if options.resize else None,
        crop=parse_sides(options.crop) if options.crop else None,
        pad=pad,
        pad_value=pad_value,
        # The arrays of a dataset have one number of channels.
        channels=3 if raw and channels is None else channels,
        form="raw" if raw else form if options.reencode else "own",
        quality=quality,
        lossless=lossless,
        transforms_all=bool(anew),
    )


def _check(options: PixelOptions, raw: bool) -> None:
    if options.crop and options.pad:
        raise UsageError(
            "`crop` and `pad` exclude each other: crop what is too large, or pad what is "
            "too small"
        )
    if raw and options.reencode:
        raise UsageError(
            "`pixels=raw` and `reencode` exclude each other: an array is not encoded. "
            "Leave out one of them"
        )
    if options.channels == "4" and options.reencode.startswith("jpeg"):
        raise UsageError(
            "a JPEG holds no alpha, the fourth channel of `channels=4`. Use "
            "`reencode=png` or `channels=3`"
        )


Undecodable = Literal["keep", "reject", "reencode"]
FeatureNames = Literal["default", "tutorial", "imagenet"]


MAX_LEVEL = 9


def _level(*words: str) -> BeforeValidator:
    """Returns a validator of a number of folders or one of some words, kept as text."""

    def validate(value: Any) -> str:
        text = str(value)
        if isinstance(value, str | int) and (text in words or text in "0123456789"):
            return text
        raise ValueError(
            f"expected {', '.join(words)} or a number of folders from 0 to {MAX_LEVEL}, "
            f"found {value!r}"
        )

    return BeforeValidator(validate, json_schema_input_type=str | int)


class ImagesOptions(LabelOptions, PixelOptions):
    """Options of image folders."""

    def undo_splits(self) -> str:
        if self.split_lists:
            return "leave out `split_lists`"
        if any(split for split, _ in by_split(self.label_table)):
            return "name the files of `label_table` without splits"
        if "split" in re.compile(self.label_pattern).groupindex:
            return "rename the group split in `label_pattern`"
        if self.label_table:
            return "use `table_split_column=none` (`split_from=none` for folders)"
        return super().undo_splits()

    feature_names: FeatureNames = Field(
        "default",
        description="names of the features: of this project, of TensorFlow's tutorial, "
        "or of ImageNet's records",
    )
    check_pictures: CheckLevel = Field(
        "structure",
        description="how each picture is checked: its header, its structure too (finds "
        "pictures that are cut or damaged), or by decoding every pixel",
    )
    max_pixels: int = Field(
        MAX_PIXELS, ge=1, description="largest height x width of a picture"
    )
    undecodable: Undecodable = Field(
        "keep",
        description="what becomes of pictures that TFDS cannot decode (GIF, WebP, TIFF): "
        "kept, so that readers get the encoded bytes of all pictures, rejected, or "
        "re-encoded as PNG",
    )
    split_from: Annotated[str, _level("auto", "none")] = Field(
        "auto",
        description="which folders are splits: those that are named like splits and "
        "hold class folders, none, or those at a level below each input (1: the folders "
        "in it, 0: the input itself)",
    )
    label_from: Annotated[str, _level("auto", "none", "parent")] = Field(
        "auto",
        description="which folder names the class: the one below the split, the one that "
        "holds the picture (parent), that at a level below each input (1: the folders "
        "in it, 0: the input itself), or none: pictures have no labels",
    )


def make_source(
    options: ImagesOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of image folders.

    Raises:
      UsageError: options exclude each other.
    """
    rules = pixel_rules(options, options.undecodable)
    from recordmill.transforms.sources.images import source
    from recordmill.transforms.sources.images.find import ask_labels
    from recordmill.transforms.sources.images.source import PixelImages

    kind: Callable[..., ImagesSource] = source.ImagesSource
    if rules is not None:
        kind = partial(PixelImages, rules=rules)
    # What is made anew is decodable, whatever the file was.
    makes_all = rules is not None and rules.transforms_all
    return kind(
        feature_names=options.feature_names,
        check_pictures=options.check_pictures,
        max_pixels=options.max_pixels,
        undecodable="reencode" if makes_all else options.undecodable,
        split_from=options.split_from,
        label_from=options.label_from,
        storage=storage,
        asked=ask_labels(options, as_text=as_text),
    )


def describe_inputs(options: ImagesOptions, files: Sequence[InputFile]) -> str:
    """Returns how the folders are read, by the files that are named as pictures.

    The others are not read for it: one inventory has one content.
    """
    from recordmill.transforms.sources.images.find import ask_labels
    from recordmill.transforms.sources.images.layout import describe_folders
    from recordmill.transforms.sources.images.prepare import describe_noted

    asked = ask_labels(options, as_text=False)
    if asked is not None:
        levels = (options.split_from, options.label_from)
        return describe_noted(files, asked, levels)
    return describe_folders(
        files, split_from=options.split_from, label_from=options.label_from
    )


FORMAT = SourceFormat(
    name="images",
    summary="A folder of pictures for each class.",
    options=ImagesOptions,
    make_source=make_source,
    describe_inputs=describe_inputs,
    examples=(
        (
            "a folder of pictures for each class",
            "recordmill convert images photos out/photos",
        ),
        (
            "a tenth for tests, in shards of 10 MB",
            "recordmill convert images photos out/split-photos --split train=0.9 \\\n    --split test=0.1 --shard-size 10MB",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer images photos -o photos.yaml",
        ),
    ),
)
