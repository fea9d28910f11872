"""Declares the options of NumPy files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions


class NumpyOptions(SourceOptions):
    """Options of NumPy files."""

    label_array: str = Field(
        "",
        description="the file, or array of an .npz, that holds the labels: it becomes "
        "the column label",
    )
    class_names: str = Field(
        "",
        description="input file with the names of the classes of the column label, one a "
        "line; or COLUMN=FILE, with commas between several",
    )
    split_from: Literal["auto", "none"] = Field(
        "auto",
        description="whether names of files and arrays tell splits (train, test, ...)",
    )
