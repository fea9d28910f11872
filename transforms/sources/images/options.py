"""Declares the options of image folders."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from recordmill.transforms.pictures.check import CheckLevel
from recordmill.transforms.pictures.structure import MAX_PIXELS
from recordmill.transforms.sources.images.label_options import LabelOptions, by_split
from recordmill.transforms.sources.images.pixel_options import PixelOptions

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
