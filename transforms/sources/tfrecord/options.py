"""Declares the options of TFRecord files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions

Records = Literal["keep", "decode"]
SplitFrom = Literal["auto", "none"]


class TfrecordOptions(SourceOptions):
    """Options of TFRecord files."""

    records: Records = Field(
        "keep",
        description="whether the records are kept byte for byte, unread, or decoded into "
        "columns, so that a schema can change them",
    )
    split_from: SplitFrom = Field(
        "auto",
        description="whether names of files tell splits (train, test, ...)",
    )
