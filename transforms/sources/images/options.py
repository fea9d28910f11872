"""Declares the options of images, and the input format itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import WarningCode
from recordmill.schemas.job import SPLIT_PATTERN
from recordmill.schemas.source_options import AS_TEXT, SourceOptions
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    image_format,
    is_certain_image,
    other_image_format,
)
from recordmill.transforms.images.pixel_rules import (
    AS_THEY_ARE,
    PixelRules,
    parse_pad,
    parse_reencode,
    parse_resize,
    parse_sides,
)
from recordmill.transforms.sources.file_splits import AUTO, NONE
from recordmill.transforms.sources.registry import Request, SourceFormat, level_of

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


Undecodable = Literal["keep", "reject", "reencode"]
FeatureNames = Literal["default", "tutorial", "imagenet", "tfod"]
_SIZES = {name: name for name in ("height", "width", "depth")}
# The feature of each column, by the option.
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


def _check_tables(text: str) -> None:
    for split, _ in by_split(text):
        if split and not SPLIT_PATTERN.fullmatch(split):
            raise ValueError(
                f"expected SPLIT=FILE with a split of letters, digits, '_' and '-', found "
                f"{split!r}"
            )


def _check_lists(text: str) -> None:
    _check_tables(text)
    for split, name in by_split(text):
        if not split:
            raise ValueError(
                f"expected SPLIT=FILE, such as train=train.txt, found {name!r}"
            )


def _check_pairs(text: str) -> None:
    pairs = by_split(text)
    if text in (AUTO, NONE):
        return
    if not (pairs and all(name and folder.strip("/") for name, folder in pairs)):
        raise ValueError(
            "expected auto, none, or NAME=DIR with the name of a feature and a folder, "
            f"such as mask=masks, found {text!r}"
        )


def _check_pattern(text: str) -> None:
    try:
        found = re.compile(text)
    except re.error as error:
        raise ValueError(
            f"expected a regular expression of Python, found {text!r}: {error}"
        ) from None
    if not found.groupindex:
        raise ValueError(
            "expected a regular expression with named groups, such as "
            f"(?P<label>[a-z]+)_.*, found {text!r}"
        )


class FileKind(NamedTuple):
    """What the files of a source are, each of which is a record."""

    noun: str
    endings: tuple[str, ...]
    # of the first bytes of a file, SIGNATURE_BYTES or more
    format_of: Callable[[bytes], str]  # its format, or ""
    is_certain: Callable[[bytes], bool]  # whether it is one without such an ending
    other_format: Callable[[bytes], str]  # a format that is not supported, or ""
    usual: str  # formats to save files in
    # codes of warnings
    unsupported: WarningCode
    unlisted: WarningCode = "unlisted-images"


class FileOptions(SourceOptions):
    """Options of files that are a record each: their labels and splits."""

    kind: ClassVar[FileKind]
    # whether files are named that have the objects in images, or looked for
    has_objects: ClassVar[bool] = False
    finds_objects: ClassVar[bool] = False
    finds_pairs: ClassVar[bool] = False  # or such that belong to others

    label_table: Annotated[str, AS_TEXT, _read_by(_check_tables)] = Field(
        "",
        description="CSV, TSV or JSON Lines with a row for each file: its path, its "
        "label, and columns that become features. The path is one below the input folder, "
        "or one like those of inputs. train=a.csv,test=b.csv names a table of each split",
    )
    path_column: str = Field(
        AUTO,
        description="column of `label_table` with the file's path; auto: path, file, "
        "filename, image and the like",
    )
    label_column: str = Field(
        AUTO,
        description="column of `label_table` with the label; auto: label, class, category "
        "and the like; none: no such column",
    )
    table_split_column: str = Field(
        AUTO,
        description="column of `label_table` with the split; auto: split, if it is there "
        "and nothing else has the splits; none: no such column",
    )
    table_rows: str = "image"
    label_separator: str = Field(
        "",
        description="separator of the labels of a file that has several, such as | or a "
        "blank; lists of JSON Lines need none",
    )
    label_pattern: Annotated[str, _read_by(_check_pattern)] = Field(
        "",
        description="regular expression for the names of the files (with / in it, for "
        "their paths below the input folder); its groups label and split are these, "
        "others are features: (?P<label>[a-z]+)_(?P<id>\\d+)\\.jpg",
    )
    label_map: str = Field(
        "",
        description="file of the classes in their order: a name a line, or CSV with the "
        "columns id,name",
    )
    split_lists: Annotated[str, AS_TEXT, _read_by(_check_lists)] = Field(
        "",
        description="lists with the path of a file in each line, which is in that "
        "split: train=train.txt,val=val.txt",
    )
    unlisted: Literal["reject", "leave_out"] = Field(
        "reject",
        description="what to do with files that `label_table`, `label_pattern`, "
        "`split_lists` or `pair` have nothing for: reject them, or leave them out "
        "and count them",
    )
    split_from: Annotated[str, level_of("auto", "none")] = Field(
        AUTO,
        description="which folders are splits. auto: those with names like splits that hold "
        "class folders. 0: each input. 1: the folders in each input. Higher numbers: the "
        "folders at that level. none: no folder",
    )
    label_from: Annotated[str, level_of("auto", "none", "parent")] = Field(
        AUTO,
        description="which folder names the class. auto: the one below the split. parent: "
        "the one that holds the file. 0: the input. 1: the folder in the input, and so on. "
        "none: there are no labels",
    )

    def undo_splits(self) -> str:
        if self.split_lists:
            return "leave out `split_lists`"
        if any(split for split, _ in self.tables):
            return "name the files of `label_table` without splits"
        if "split" in self.groups:
            return "rename the group split in `label_pattern`"
        if self.label_table:
            return "use `table_split_column=none` (`split_from=none` for folders)"
        return super().undo_splits()

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Returns (split, file) of tables with a row for each image."""
        return by_split(self.label_table)

    @property
    def named_files(self) -> list[tuple[str, str, str]]:
        """Returns option, split and name of each file that options name."""
        found = [("label_table", *each) for each in self.tables]
        found += [("split_lists", *each) for each in by_split(self.split_lists)]
        return found + [("label_map", "", name) for name in [self.label_map] if name]

    @property
    def groups(self) -> frozenset[str]:
        """Returns the names of the pattern's groups."""
        return frozenset(re.compile(self.label_pattern).groupindex)

    @property
    def split_folders(self) -> str:
        """Returns `split_from`; none if lists, names or a column have the splits."""
        by_column = self.table_split_column not in (AUTO, NONE)
        elsewhere = self.split_lists or "split" in self.groups or by_column
        return NONE if elsewhere else self.split_from

    @property
    def has_annotations(self) -> bool:
        """Tests whether anything but folders has labels, splits or features."""
        return bool(self.named_files or self.label_pattern) or self.label_from == NONE

    @property
    def has_labels(self) -> bool:
        """Tests whether images have labels."""
        return self.label_from != NONE and self.label_column != NONE

    @property
    def column_names(self) -> Mapping[str, str]:
        """Returns the feature of each column; the first has the content of files."""
        raise NotImplementedError

    @property
    def reserved(self) -> frozenset[str]:
        """Returns the names that features of a table cannot have."""
        content, *_ = own = dict(self.column_names)
        for label in () if self.has_labels else {"label", "text"} - {content}:
            own.pop(label, None)
        return frozenset({*own, *own.values()})

    @property
    def labels_by_folder(self) -> bool:
        """Tests whether folders are the classes."""
        has_others = self.tables or self.has_objects or "label" in self.groups
        return not (has_others or self.label_from == NONE)

    def require_consistent(self) -> None:
        """Refuses options of labels and splits that contradict each other."""
        tables, groups = self.tables, self.groups
        of_objects = self.table_rows == "object"
        label = "`label_table`" if tables else "a group label in `label_pattern`"
        more = "use `label_column=none`" if tables else "rename the group"
        more = f"; for no labels {more}" if self.label_from == NONE else ""
        splits = {
            "`split_lists`": bool(self.split_lists),
            "a split of each `label_table`": any(split for split, _ in tables),
            "`table_split_column`": self.table_split_column not in (AUTO, NONE),
            "a group split in `label_pattern`": "split" in groups,
            f"`split_from={self.split_from}`": self.split_from not in (AUTO, NONE),
        }
        both = [name for name, is_given in splits.items() if is_given]
        of_table = "is a column of `label_table`: give the table, or leave it out"
        checks = {
            f"`{name}` {of_table}": not tables and getattr(self, name) != AUTO
            for name in ("path_column", "label_column", "table_split_column")
        }
        checks |= {
            "`table_rows=object` is for `label_table`: give it, or leave it out": (
                of_objects and not tables
            ),
            "`table_rows=object` and `label_separator` exclude each other, as each row "
            "has one label: leave out one of them": of_objects and self.label_separator,
            "`path_column`: a table needs a column with the paths of the images": (
                self.path_column == NONE
            ),
            "`label_table` and `label_pattern` exclude each other: leave out one of "
            "them": tables and self.label_pattern,
            f"`label_from={self.label_from}` and {label} exclude each other, as both give "
            f"the label: leave out one of them{more}": (
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
            "`label_separator` is for labels of `label_table` or `label_pattern`: leave "
            "it out": self.label_separator and self.labels_by_folder,
            f"{' and '.join(both)} exclude each other, as each gives the split: leave out "
            "all but one": len(both) > 1,
            "`label_table`: some tables have a split and others have none: give each its "
            "split, as in train=a.csv,test=b.csv, or none": (
                len({bool(split) for split, _ in tables}) > 1
            ),
            "`unlisted` is for `label_table`, `label_pattern` or `split_lists`: leave it "
            "out": self.unlisted != "reject"
            and not (tables or self.label_pattern or self.split_lists)
            and not (self.has_objects or self.finds_objects or self.finds_pairs),
        }
        _refuse_first(checks)


TABLE_ROWS = (
    "what a row of `label_table` describes: a file, or an object in it, such as a box or "
    "a word. The rows of objects become lists, one for each column"
)


class ImagesOptions(FileOptions):
    """Options of images."""

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

    resize: Annotated[str, _read_by(parse_resize)] = Field(
        "",
        description="scale images to height x width (224x224), or to one side, with the "
        "other in proportion (shorter=256, longer=512). :scaled behind it decodes JPEGs at "
        "the nearest larger scale, in less time",
    )
    crop: Annotated[str, _read_by(parse_sides)] = Field(
        "", description="keep height x width of the middle, after `resize` (224x224)"
    )
    pad: Annotated[str, _read_by(parse_pad)] = Field(
        "",
        description="put images into the middle of height x width, after `resize`, with "
        "samples of 0 or another value around them (224x224, 224x224:255)",
    )
    channels: Annotated[
        Literal["keep", "1", "3", "4"],
        BeforeValidator(_number_as_text, json_schema_input_type=str | int),
    ] = Field(
        "keep",
        description="1 gray, 3 colours, 4 colours and alpha; keep: as each image has them",
    )
    orientation: Literal["auto", "keep", "apply"] = Field(
        "auto",
        description="whether to turn images as their EXIF data say; auto: only if another "
        "option re-encodes them, as the new files have no EXIF data",
    )
    animated: Literal["first", "reject"] = Field(
        "first",
        description="what to do with images of several frames, where another option "
        "re-encodes images: keep the first frame, or reject them; reject works alone, too",
    )
    reencode: Annotated[str, _read_by(parse_reencode)] = Field(
        "",
        description="re-encode all images: jpeg, jpeg:quality=92, png, webp, "
        "webp:quality=80, webp:lossless; without it re-encoded JPEGs stay JPEG, and "
        "others become PNG",
    )
    pixels: Literal["encoded", "raw"] = Field(
        "encoded", description="raw: uint8 arrays of the pixels in place of image files"
    )
    feature_names: FeatureNames = Field(
        "default",
        description="names of the features: of recordmill, of TensorFlow's tutorial, "
        "or of ImageNet's records",
    )
    check_images: CheckLevel = Field(
        "structure",
        description="how to check each image: its header, its structure too (finds "
        "incomplete and damaged images), or by decoding every pixel",
    )
    max_pixels: int = Field(
        MAX_PIXELS, ge=1, description="largest height x width of an image"
    )
    undecodable: Undecodable = Field(
        "keep",
        description="what to do with images that TFDS cannot decode (GIF, WebP, TIFF). "
        "keep: readers get the encoded bytes of all images. reencode: they become PNG",
    )
    pair: Annotated[str, AS_TEXT, _read_by(_check_pairs)] = Field(
        AUTO,
        description="folders whose files belong to images of the same name, as a feature "
        "each: mask=masks,text=captions (files of images, .txt, .json or .npy). auto: "
        "masks, captions and the like, by the names of both folders. none: all folders "
        "hold images of their own",
    )
    mask_pad: int = Field(
        255, ge=0, le=65535, description="value around masks whose images get a `pad`"
    )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Returns (name of the feature, folder) of files that belong to images."""
        return [] if self.pair in (AUTO, NONE) else by_split(self.pair)

    @property
    def finds_pairs(self) -> bool:  # type: ignore[override]
        return self.pair != NONE

    @property
    def reserved(self) -> frozenset[str]:
        return super().reserved.union(name for name, _ in self.pairs)

    annotations: Annotated[str, AS_TEXT, _read_by(_check_tables)] = Field(
        AUTO,
        description="files of COCO, Pascal VOC or YOLO with the boxes of the images, or a "
        "folder of them. train=a.json,val=b.json names a file of each split. auto: found "
        "by their content. none: images have no boxes",
    )
    boxes_outside: Literal["clip", "keep", "reject"] = Field(
        "clip",
        description="what to do with boxes that are not inside the image, or have no area. "
        "clip: cut them, and leave out those without an area. keep: leave them as they "
        "are. reject: reject the image",
    )
    masks: Literal["none", "png"] = Field(
        "none",
        description="png: a mask of each object as a PNG file, drawn of its outline; it "
        "needs the package pycocotools",
    )
    without_objects: Literal["keep", "leave_out"] = Field(
        "keep",
        description="what to do with images in which `annotations` have no object: keep "
        "them, or leave them out and count them",
    )

    @property
    def column_names(self) -> Mapping[str, str]:
        return COLUMN_NAMES[self.feature_names]

    @property
    def has_objects(self) -> bool:  # type: ignore[override]
        return self.annotations not in (AUTO, NONE)

    @property
    def finds_objects(self) -> bool:  # type: ignore[override]
        by_label = self.label_table or "label" in self.groups
        return self.annotations == AUTO and self.label_from == AUTO and not by_label

    @property
    def object_files(self) -> list[tuple[str, str]]:
        """Returns (split, file) of files with the objects in images."""
        return by_split(self.annotations) if self.has_objects else []

    @property
    def named_files(self) -> list[tuple[str, str, str]]:
        files = [("annotations", *each) for each in self.object_files]
        return files + super().named_files

    def undo_splits(self) -> str:
        if self.has_objects and not (self.split_lists or "split" in self.groups):
            return "use `split_from=none`, and name no splits in `annotations`"
        return super().undo_splits()

    def require_consistent(self) -> None:
        super().require_consistent()
        may_have = self.has_objects or self.finds_objects
        labels = {
            "`label_table`": self.label_table,
            "a group label in `label_pattern`": "label" in self.groups,
            f"`label_from={self.label_from}`": self.label_from != AUTO,
            "`label_separator`": self.label_separator,
        }
        _refuse_first(
            {
                **{
                    f"`annotations` and {other} exclude each other, as both give labels: "
                    "leave out one of them": self.has_objects and is_given
                    for other, is_given in labels.items()
                },
                "`annotations` and `split_lists` exclude each other, as each gives the "
                "split: leave out one of them, or the splits in `annotations`": (
                    self.split_lists and any(split for split, _ in self.object_files)
                ),
                "`pair`: a name is that of a feature of the images: give another one": (
                    not super().reserved.isdisjoint(name for name, _ in self.pairs)
                ),
                "`annotations`: some files have a split and others have none: give each its "
                "split, as in train=a.json,val=b.json, or none": (
                    len({bool(split) for split, _ in self.object_files}) > 1
                ),
                "`boxes_outside` is for `annotations`: leave it out": (
                    self.boxes_outside != "clip" and not may_have
                ),
                "`masks` is for `annotations`: leave it out": (
                    self.masks != "none" and not may_have
                ),
                "`without_objects` is for `annotations`: leave it out": (
                    self.without_objects != "keep" and not may_have
                ),
            }
        )

    def pixel_rules(self) -> PixelRules:
        """Returns what is done with pixels; refuses options that exclude each other."""
        usual = ImagesOptions.model_fields["mask_pad"].default
        if self.mask_pad != usual and not self.pad:
            raise UsageError(
                "`mask_pad` is for `pad`: give it, or leave out `mask_pad`"
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
            # What TFDS cannot decode becomes PNG with all that its samples have.
            is_kept = self.undecodable != "reencode"
            return AS_THEY_ARE if is_kept else PixelRules(keeps_samples=True)
        other = "".join(transforming[:1])
        _refuse_first(
            {
                "`crop` and `pad` exclude each other: crop what is too large, or pad what "
                "is too small": self.crop and self.pad,
                "`pixels=raw` and `reencode` exclude each other: an array is not encoded. "
                "Leave out one of them": raw and self.reencode,
                "a JPEG holds no alpha, the fourth channel of `channels=4`. Use "
                "`reencode=png` or `channels=3`": (
                    self.channels == "4" and self.reencode.startswith("jpeg")
                ),
                f"`undecodable={self.undecodable}` and `{other}` exclude each other, as "
                "all images are re-encoded. Leave out `undecodable`": (
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
            form="raw" if raw else form if self.reencode else "own",
            quality=quality,
            lossless=lossless,
            transforms_all=bool(transforming),
        )


def _refuse_first(problems: Mapping[str, object]) -> None:
    """Raises the first problem that is there."""
    if found := next((text for text, is_there in problems.items() if is_there), ""):
        raise UsageError(found)


DEFAULTS = ImagesOptions.model_validate({})


def make_source(options: ImagesOptions, request: Request) -> Source:
    """Makes the source of images; refuses options that exclude each other."""
    rules = options.pixel_rules()
    options.require_consistent()
    from recordmill.transforms.sources.images.source import ImagesSource

    return ImagesSource(
        options=options,
        storage=request.storage,
        wanted=request.columns if request.as_text else None,
        rules=rules,
    )


def describe_inputs(
    options: FileOptions, files: Sequence[InputFile], storage: StorageOptions
) -> str:
    """Returns how the folders are read, by the files with usual endings."""
    from recordmill.transforms.inventory import Inventory
    from recordmill.transforms.sources.images.find import describe_folders

    return describe_folders(Inventory.of(files), options, storage)


FORMAT = SourceFormat(
    name="images",
    summary="A folder of images for each class.",
    options=ImagesOptions,
    make_source=make_source,
    describe_inputs=describe_inputs,
    examples=(
        (
            "a folder of images for each class",
            "recordmill convert images photos out/photos",
        ),
        (
            "a tenth for tests, in shards of 10 MB",
            "recordmill convert images photos out/split-photos --split train=0.9 \\\n    --split test=0.1 --shard-size 10MB",
        ),
        (
            "boxes of COCO",
            "recordmill convert images photos out/boxes --unlisted leave_out \\\n"
            "    --annotations labelled/instances.json",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer images photos -o photos.yaml",
        ),
    ),
)
