"""Declares the options of image folders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.job.source_options import SourceOptions
from recordmill.transforms.pictures.check import CheckLevel
from recordmill.transforms.pictures.structure import MAX_PIXELS

FeatureNames = Literal["default", "tutorial", "imagenet"]


class ImagesOptions(SourceOptions):
    """Options of image folders."""

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
