"""Declares the options of image folders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.job.source_options import SourceOptions

FeatureNames = Literal["default", "tutorial", "imagenet"]


class ImagesOptions(SourceOptions):
    """Options of image folders."""

    feature_names: FeatureNames = Field(
        "default",
        description="names of the features: of this project, of TensorFlow's tutorial, "
        "or of ImageNet's records",
    )
