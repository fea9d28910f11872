"""Declares the options of images, and registers the input format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_summary import WarningCode
from recordmill.schemas.job import SPLIT_PATTERN
from recordmill.schemas.source_options import JOIN_TEXTS, SourceOptions
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    image_format,
    is_certain_image,
    other_image_format,
)
from recordmill.transforms.images.pixel_rules import (
    UNCHANGED_PIXELS,
    PixelRules,
    parse_pad,
    parse_reencode,
    parse_resize,
    parse_sides,
)
from recordmill.transforms.sources.file_splits import AUTO, NONE
from recordmill.transforms.sources.registry import level_of

Undecodable = Literal["keep", "reject", "reencode"]
FeatureNames = Literal["default", "tutorial", "imagenet", "tfod"]
_SIZES = {name: name for name in ("height", "width", "depth")}
# The feature name of each column, by `feature_names`.
COLUMN_NAMES: dict[FeatureNames, dict[str, str]] = {
    "default": {"image": "image", "label": "label", **_SIZES, "filename": "filename"},
    "tutorial": {"image": "image_raw", "label": "label", **_SIZES},
    "imagenet": {
        "image": "image/encoded",
        "format": "image/format",
        "height": "image/height",
        "width": "image/width",
        "depth": "image/channels",
        "filename": "image/filename",
        "label": "image/class/label",
        "text": "image/class/text",
    },
    "tfod": {
        "image": "image/encoded",
        "format": "image/format",
        "height": "image/height",
        "width": "image/width",
        "filename": "image/filename",
        "source_id": "image/source_id",
        "label": "image/object/class/label",
    },
}


def parse_split_files(text: str) -> list[tuple[str, str]]:
    """Returns (split, file name) of each comma-separated part of an option.

    A part without "=" has the split "".

    >>> parse_split_files("train=a.csv,b.csv")
    [('train', 'a.csv'), ('', 'b.csv')]
    """
    splits_and_names = []
    for part in text.split(","):
        split, mark, name = part.partition("=")
        splits_and_names.append((split, name) if mark else ("", part))
    return [
        (split.strip(), name.strip())
        for split, name in splits_and_names
        if name.strip()
    ]


def _validator_of(parse: Callable[[str], Any]) -> AfterValidator:
    """Returns a validator for a text that is empty or can be parsed."""

    def validate(text: str) -> str:
        if text:
            parse(text)
        return text

    return AfterValidator(validate)


def _number_as_text(option: Any) -> Any:
    """Converts a whole number, such as the YAML value 3, to text."""
    return str(option) if type(option) is int else option


def _check_tables(text: str) -> None:
    for split, _ in parse_split_files(text):
        if split and not SPLIT_PATTERN.fullmatch(split):
            raise ValueError(
                f"expected SPLIT=FILE with a split of letters, digits, '_' and '-', found "
                f"{split!r}"
            )


def _check_lists(text: str) -> None:
    _check_tables(text)
    for split, name in parse_split_files(text):
        if not split:
            raise ValueError(
                f"expected SPLIT=FILE, such as train=train.txt, found {name!r}"
            )


def _check_pairs(text: str) -> None:
    pairs = parse_split_files(text)
    if text in (AUTO, NONE):
        return
    if not (pairs and all(name and folder.strip("/") for name, folder in pairs)):
        raise ValueError(
            "expected auto, none, or NAME=DIR with the name of a feature and a folder, "
            f"such as mask=masks, found {text!r}"
        )


def _check_pattern(text: str) -> None:
    try:
        expression = re.compile(text)
    except re.error as error:
        raise ValueError(
            f"expected a regular expression of Python, found {text!r}: {error}"
        ) from None
    if not expression.groupindex:
        raise ValueError(
            "expected a regular expression with named groups, such as "
            f"(?P<label>[a-z]+)_.*, found {text!r}"
        )


class FileKind(NamedTuple):
    """A kind of files that become a record each, such as images."""

    noun: str
    endings: tuple[str, ...]
    # functions of the first bytes of a file, SIGNATURE_BYTES or more
    format_of: Callable[[bytes], str]  # returns the format, or ""
    is_certain: Callable[[bytes], bool]  # whether the bytes suffice without an ending
    other_format: Callable[[bytes], str]  # returns an unsupported format, or ""
    recommended_formats: str  # the formats to recommend
    # codes of warnings
    unsupported: WarningCode
    unlisted: WarningCode = "unlisted-images"


class FileOptions(SourceOptions):
    """Options for the labels and splits of files that become a record each."""

    kind: ClassVar[FileKind]
    has_objects: ClassVar[bool] = False  # whether options name annotation files
    finds_objects: ClassVar[bool] = False  # whether annotation files are detected
    finds_pairs: ClassVar[bool] = False  # whether partners are named or detected

    label_table: Annotated[str, JOIN_TEXTS, _validator_of(_check_tables)] = Field(
        "",
        description="CSV, TSV or JSON Lines table with one row per file: its path, its "
        "label, and columns that become features. Paths are relative to "
        "the input folder, or written as the inputs are. "
        "train=a.csv,test=b.csv: one table per split",
    )
    path_column: str = Field(
        AUTO,
        description="column of `label_table` with the path of the file; auto: path, "
        "file, filename, image or similar",
    )
    label_column: str = Field(
        AUTO,
        description="column of `label_table` with the label; auto: label, class, "
        "category or similar; none: there is no such column",
    )
    table_split_column: str = Field(
        AUTO,
        description="column of `label_table` with the split; auto: the column split, "
        "if it exists and nothing else names the splits; none: there is no "
        "such column",
    )
    table_rows: str = "image"
    label_separator: str = Field(
        "",
        description="separator of several labels of one file, such as | or a space; "
        "lists in JSON Lines need none",
    )
    label_pattern: Annotated[str, _validator_of(_check_pattern)] = Field(
        "",
        description="regular expression for file names (for relative paths, if it "
        "contains /). The groups label and split set the label and the "
        "split, other groups become features: "
        "(?P<label>[a-z]+)_(?P<id>\\d+)\\.jpg",
    )
    label_map: str = Field(
        "",
        description="file with the class names in order: one name per line, or CSV "
        "with the columns id,name",
    )
    split_lists: Annotated[str, JOIN_TEXTS, _validator_of(_check_lists)] = Field(
        "",
        description="lists of the files in each split, one path per line: "
        "train=train.txt,val=val.txt",
    )
    unlisted: Literal["reject", "leave_out"] = Field(
        "reject",
        description="what to do with files that are missing from `label_table`, "
        "`label_pattern`, `split_lists` or `pair`. reject: reject them. "
        "leave_out: skip and count them",
    )
    split_from: Annotated[str, level_of("auto", "none")] = Field(
        AUTO,
        description="level of the folders that are splits: 0 is the input, 1 a folder "
        "in it, and so on. auto: folders that are named like splits and "
        "contain class folders. none: no folder is a split",
    )
    label_from: Annotated[str, level_of("auto", "none", "parent")] = Field(
        AUTO,
        description="level of the folder that names the class: 0 is the input, 1 a "
        "folder in it, and so on. auto: the folder below the split. "
        "parent: the folder of the file. none: there are no labels",
    )

    def undo_splits_hint(self) -> str:
        if self.split_lists:
            return "leave out `split_lists`"
        if any(split for split, _ in self.tables):
            return "name the files of `label_table` without splits"
        if "split" in self.pattern_groups:
            return "rename the group split in `label_pattern`"
        if self.label_table:
            return "use `table_split_column=none` (`split_from=none` for folders)"
        return super().undo_splits_hint()

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Returns (split, file) of each table that `label_table` names."""
        return parse_split_files(self.label_table)

    @property
    def named_files(self) -> list[tuple[str, str, str]]:
        """Returns (option, split, file name) of each file that options name."""
        files = [("label_table", *split_and_name) for split_and_name in self.tables]
        files += [
            ("split_lists", *split_and_name)
            for split_and_name in parse_split_files(self.split_lists)
        ]
        return files + [("label_map", "", name) for name in [self.label_map] if name]

    @property
    def pattern_groups(self) -> frozenset[str]:
        """Returns the group names of `label_pattern`."""
        return frozenset(re.compile(self.label_pattern).groupindex)

    @property
    def split_level(self) -> str:
        """Returns `split_from`, or NONE if lists, names or a column have the splits."""
        by_column = self.table_split_column not in (AUTO, NONE)
        elsewhere = self.split_lists or "split" in self.pattern_groups or by_column
        return NONE if elsewhere else self.split_from

    @property
    def has_annotations(self) -> bool:
        """Tests whether labels, splits or features come from more than folders."""
        return bool(self.named_files or self.label_pattern) or self.label_from == NONE

    @property
    def has_labels(self) -> bool:
        """Tests whether images have labels."""
        return self.label_from != NONE and self.label_column != NONE

    @property
    def column_names(self) -> Mapping[str, str]:
        """Returns the feature name of each column; the first column has the files."""
        raise NotImplementedError

    @property
    def reserved_names(self) -> frozenset[str]:
        """Returns the names that a feature of a table cannot have."""
        content, *_ = features_by_column = dict(self.column_names)
        for label in () if self.has_labels else {"label", "text"} - {content}:
            features_by_column.pop(label, None)
        return frozenset({*features_by_column, *features_by_column.values()})

    @property
    def labels_by_folder(self) -> bool:
        """Tests whether folders are the classes."""
        has_others = self.tables or self.has_objects or "label" in self.pattern_groups
        return not (has_others or self.label_from == NONE)

    def require_consistent(self) -> None:
        """Raises UsageError if options of labels and splits contradict each other."""
        tables, groups = self.tables, self.pattern_groups
        of_objects = self.table_rows == "object"
        label = "`label_table`" if tables else "a group label in `label_pattern`"
        hint = "use `label_column=none`" if tables else "rename the group"
        hint = f"; for no labels {hint}" if self.label_from == NONE else ""
        splits = {
            "`split_lists`": bool(self.split_lists),
            "a split of each `label_table`": any(split for split, _ in tables),
            "`table_split_column`": self.table_split_column not in (AUTO, NONE),
            "a group split in `label_pattern`": "split" in groups,
            f"`split_from={self.split_from}`": self.split_from not in (AUTO, NONE),
        }
        split_options = [name for name, is_given in splits.items() if is_given]
        of_table = "is a column of `label_table`: set `label_table`, or leave it out"
        checks = {
            f"`{name}` {of_table}": not tables and getattr(self, name) != AUTO
            for name in ("path_column", "label_column", "table_split_column")
        }
        checks |= {
            "`table_rows=object` requires `label_table`: set it, or leave out "
            "`table_rows`": (of_objects and not tables),
            "`table_rows=object` and `label_separator` cannot be combined, because "
            "each row has one label: leave out one of them": of_objects
            and self.label_separator,
            "`path_column`: a table requires a column with the paths of the images": (
                self.path_column == NONE
            ),
            "`label_table` and `label_pattern` cannot be combined: leave out one of "
            "them": tables and self.label_pattern,
            f"`label_from={self.label_from}` and {label} cannot be combined, because "
            f"both set the label: leave out one of them{hint}": (
                self.label_from != AUTO and (tables or "label" in groups)
            ),
        }
        checks |= {
            f"`{name}`: there are no labels: leave it out": (
                getattr(self, name) and not self.has_labels
            )
            for name in ("label_map", "label_separator")
        }
        checks |= {
            "`label_separator` requires labels from `label_table` or `label_pattern`: "
            "leave it out": self.label_separator and self.labels_by_folder,
            f"{' and '.join(split_options)} cannot be combined, because each sets the split: "
            "leave out all but one": len(split_options) > 1,
            "`label_table`: some tables have a split and others do not: name the split "
            "of each, as in train=a.csv,test=b.csv, or none": (
                len({bool(split) for split, _ in tables}) > 1
            ),
            "`unlisted` requires `label_table`, `label_pattern` or `split_lists`: "
            "leave it out": self.unlisted != "reject"
            and not (tables or self.label_pattern or self.split_lists)
            and not (self.has_objects or self.finds_objects or self.finds_pairs),
        }
        _raise_first_problem(checks)


TABLE_ROWS = (
    "what a row of `label_table` describes: a file, or an object in a file, such as a "
    "box or a word. The rows of objects become lists, one per column"
)


class ImagesOptions(FileOptions):
    """Options for images."""

    kind: ClassVar[FileKind] = FileKind(
        "image",
        (".jpeg", ".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
        image_format,
        is_certain_image,
        other_image_format,
        "JPEG or PNG",
        "unsupported-images",
    )

    table_rows: Literal["image", "object"] = Field("image", description=TABLE_ROWS)

    resize: Annotated[str, _validator_of(parse_resize)] = Field(
        "",
        description="scale images to height x width (224x224), or one side in "
        "proportion (shorter=256, longer=512). Append :scaled to decode "
        "JPEGs at the nearest larger scale, which is faster",
    )
    crop: Annotated[str, _validator_of(parse_sides)] = Field(
        "",
        description="crop images to the middle height x width, after `resize` "
        "(224x224)",
    )
    pad: Annotated[str, _validator_of(parse_pad)] = Field(
        "",
        description="center images in height x width, after `resize`, and fill the "
        "rest with 0 or another value (224x224, 224x224:255)",
    )
    channels: Annotated[
        Literal["keep", "1", "3", "4"],
        BeforeValidator(_number_as_text, json_schema_input_type=str | int),
    ] = Field(
        "keep",
        description="number of channels: 1 gray, 3 color, 4 color with alpha; keep: the channels of each image",
    )
    orientation: Literal["auto", "keep", "apply"] = Field(
        "auto",
        description="rotate images according to their EXIF data; auto: only if another "
        "option re-encodes them, because the new files have no EXIF data",
    )
    animated: Literal["first", "reject"] = Field(
        "first",
        description="what to do with images of several frames if another option "
        "re-encodes images. first: keep the first frame. reject: reject "
        "them, also without re-encoding",
    )
    reencode: Annotated[str, _validator_of(parse_reencode)] = Field(
        "",
        description="re-encode all images: jpeg, jpeg:quality=92, png, webp, "
        "webp:quality=80, webp:lossless; if not set, re-encoded JPEGs stay "
        "JPEG and others become PNG",
    )
    pixels: Literal["encoded", "raw"] = Field(
        "encoded",
        description="encoded: store image files. raw: store uint8 arrays of pixels",
    )
    feature_names: FeatureNames = Field(
        "default",
        description="names of the features. default: those of recordmill. tutorial: as "
        "in TensorFlow's tutorial. imagenet: as in ImageNet's records. "
        "tfod: as in the Object Detection API",
    )
    check_images: CheckLevel = Field(
        "structure",
        description="how to check each image. header: its header. structure: also its "
        "structure (finds incomplete and damaged images). decode: decode "
        "every pixel",
    )
    max_pixels: int = Field(
        MAX_PIXELS, ge=1, description="maximum height x width of an image"
    )
    undecodable: Undecodable = Field(
        "keep",
        description="what to do with images that TFDS cannot decode (GIF, WebP, TIFF). "
        "keep: readers get the encoded bytes of all images. reencode: "
        "convert them to PNG. reject: reject them",
    )
    pair: Annotated[str, JOIN_TEXTS, _validator_of(_check_pairs)] = Field(
        AUTO,
        description="folders with files (images, .txt, .json or .npy) that belong to "
        "the images of the same name; each becomes a feature: "
        "mask=masks,text=captions. auto: detect masks, captions and "
        "similar from the names of both folders. none: all folders contain "
        "separate images",
    )
    mask_pad: int = Field(
        255,
        ge=0,
        le=65535,
        description="fill value of masks if `pad` pads their images",
    )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Returns (feature name, folder) of each pair that the option `pair` names."""
        return [] if self.pair in (AUTO, NONE) else parse_split_files(self.pair)

    @property
    def finds_pairs(self) -> bool:  # type: ignore[override]
        return self.pair != NONE

    @property
    def reserved_names(self) -> frozenset[str]:
        return super().reserved_names.union(name for name, _ in self.pairs)

    annotations: Annotated[str, JOIN_TEXTS, _validator_of(_check_tables)] = Field(
        AUTO,
        description="COCO, Pascal VOC or YOLO files with the boxes of the images, or a "
        "folder of them. train=a.json,val=b.json: one file per split. "
        "auto: detected by content. none: images have no boxes",
    )
    boxes_outside: Literal["clip", "keep", "reject"] = Field(
        "clip",
        description="what to do with boxes that are outside the image or have no area. "
        "clip: clip them to the image and drop boxes without an area. "
        "keep: keep them unchanged. reject: reject the image",
    )
    masks: Literal["none", "png"] = Field(
        "none",
        description="png: draw a mask of each object from its outline, as a PNG file; "
        "requires the package pycocotools",
    )
    without_objects: Literal["keep", "leave_out"] = Field(
        "keep",
        description="what to do with images without an object in `annotations`. keep: "
        "keep them. leave_out: skip and count them",
    )

    @property
    def column_names(self) -> Mapping[str, str]:
        return COLUMN_NAMES[self.feature_names]

    @property
    def has_objects(self) -> bool:  # type: ignore[override]
        return self.annotations not in (AUTO, NONE)

    @property
    def finds_objects(self) -> bool:  # type: ignore[override]
        by_label = self.label_table or "label" in self.pattern_groups
        return self.annotations == AUTO and self.label_from == AUTO and not by_label

    @property
    def object_files(self) -> list[tuple[str, str]]:
        """Returns (split, file) of each annotation file that `annotations` names."""
        return parse_split_files(self.annotations) if self.has_objects else []

    @property
    def named_files(self) -> list[tuple[str, str, str]]:
        files = [
            ("annotations", *split_and_name) for split_and_name in self.object_files
        ]
        return files + super().named_files

    def undo_splits_hint(self) -> str:
        if self.has_objects and not (
            self.split_lists or "split" in self.pattern_groups
        ):
            return "use `split_from=none`, and name no splits in `annotations`"
        return super().undo_splits_hint()

    def require_consistent(self) -> None:
        super().require_consistent()
        may_have = self.has_objects or self.finds_objects
        labels = {
            "`label_table`": self.label_table,
            "a group label in `label_pattern`": "label" in self.pattern_groups,
            f"`label_from={self.label_from}`": self.label_from != AUTO,
            "`label_separator`": self.label_separator,
        }
        _raise_first_problem(
            {
                **{
                    f"`annotations` and {other} cannot be combined, because both set "
                    "labels: leave out one of them": self.has_objects and is_given
                    for other, is_given in labels.items()
                },
                "`annotations` and `split_lists` cannot be combined, because each sets "
                "the split: leave out one of them, or the splits in `annotations`": (
                    self.split_lists and any(split for split, _ in self.object_files)
                ),
                "`pair`: a name is already a feature of the images: choose another "
                "one": (
                    not super().reserved_names.isdisjoint(
                        name for name, _ in self.pairs
                    )
                ),
                "`annotations`: some files have a split and others do not: name the "
                "split of each, as in train=a.json,val=b.json, or none": (
                    len({bool(split) for split, _ in self.object_files}) > 1
                ),
                "`boxes_outside` requires `annotations`: leave it out": (
                    self.boxes_outside != "clip" and not may_have
                ),
                "`masks` requires `annotations`: leave it out": (
                    self.masks != "none" and not may_have
                ),
                "`without_objects` requires `annotations`: leave it out": (
                    self.without_objects != "keep" and not may_have
                ),
            }
        )

    def pixel_rules(self) -> PixelRules:
        """Returns the pixel rules; raises UsageError if options cannot be combined."""
        usual = ImagesOptions.model_fields["mask_pad"].default
        if self.mask_pad != usual and not self.pad:
            raise UsageError(
                "`mask_pad` requires `pad`: set it, or leave out `mask_pad`"
            )
        raw = self.pixels == "raw"
        transforming = [
            name
            for name in ("resize", "crop", "pad", "channels", "reencode", "pixels")
            if getattr(self, name) not in ("", "keep", "encoded")
        ]
        turns = self.orientation == "apply" or (
            self.orientation == AUTO and bool(transforming)
        )
        rejects = self.animated == "reject"
        if not transforming and not turns and not rejects:
            # Images that TFDS cannot decode become PNG with unchanged samples.
            is_kept = self.undecodable != "reencode"
            return UNCHANGED_PIXELS if is_kept else PixelRules(keeps_samples=True)
        other = "".join(transforming[:1])
        _raise_first_problem(
            {
                "`crop` and `pad` cannot be combined: crop larger images, or pad "
                "smaller images": self.crop and self.pad,
                "`pixels=raw` and `reencode` cannot be combined: arrays are not "
                "encoded. Leave out one of them": raw and self.reencode,
                "JPEG does not support alpha, the fourth channel of `channels=4`. Use "
                "`reencode=png` or `channels=3`": (
                    self.channels == "4" and self.reencode.startswith("jpeg")
                ),
                f"`undecodable={self.undecodable}` and `{other}` cannot be combined, "
                "because all images are re-encoded. Leave out `undecodable`": (
                    self.undecodable != "keep" and other
                ),
            }
        )
        form, quality, lossless = parse_reencode(self.reencode or "jpeg")
        pad, pad_value = parse_pad(self.pad) if self.pad else (None, 0)
        channels = None if self.channels == "keep" else int(self.channels)
        return PixelRules(
            rejects_frames=rejects,
            turns=turns,
            resize=parse_resize(self.resize) if self.resize else None,
            crop=parse_sides(self.crop) if self.crop else None,
            pad=pad,
            pad_value=pad_value,
            mask_pad=self.mask_pad,
            # The arrays of a dataset have one number of channels.
            channels=3 if raw and channels is None else channels,
            encoding="raw" if raw else form if self.reencode else "own",
            quality=quality,
            is_lossless=lossless,
            transforms_all=bool(transforming),
        )


def _raise_first_problem(problems: Mapping[str, object]) -> None:
    """Raises UsageError with the first problem whose condition is true.

    Args:
      problems: the condition of each problem.
    """
    if problem := next(
        (text for text, is_present in problems.items() if is_present), ""
    ):
        raise UsageError(problem)


DEFAULTS = ImagesOptions.model_validate({})
