"""Declares the options of IDX files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions


class IdxOptions(SourceOptions):
    """Options of IDX files."""

    class_names: str = Field(
        "",
        description="input file with the names of the classes of the column label, one a "
        "line; without it they are numbers",
    )
    split_from: Literal["auto", "none"] = Field(
        "auto",
        description="whether names of files tell splits (train, t10k, test, ...)",
    )
