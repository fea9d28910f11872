"""Declares the options of binary files with records of a fixed length."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions

ByteOrder = Literal["little", "big"]
Layout = Literal["auto", "stl10"]


class BinaryOptions(SourceOptions):
    """Options of binary files with records of a fixed length."""

    record: str = Field(
        "",
        description="fields of a record, in quotes: "
        "'label:u8,image:u8[3,32,32]:chw->hwc'",
    )
    byte_order: ByteOrder = Field("little", description="of numbers in a record")
    header_bytes: int = Field(
        0, ge=0, description="bytes before the first record of each file"
    )
    class_names: str = Field(
        "",
        description="input file with the names of the classes of the field label, one a "
        "line; or FIELD=FILE, with commas between several",
    )
    layout: Layout = Field(
        "auto",
        description="a published layout; auto: what `record` says, else by file names",
    )
    split_from: Literal["auto", "none"] = Field(
        "auto", description="whether names of files tell splits (train, test, ...)"
    )
