"""Declares the options of SVHN's files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions


class SvhnOptions(SourceOptions):
    """Options of SVHN's files."""

    split_from: Literal["auto", "none"] = Field(
        "auto", description="whether names of files tell splits (train, test, extra)"
    )
