"""Declares the options of CIFAR binary files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions

Variant = Literal["auto", "cifar10", "cifar100"]


class CifarOptions(SourceOptions):
    """Options of CIFAR binary files."""

    variant: Variant = Field(
        "auto",
        description="cifar10 or cifar100, where file names and sizes do not tell",
    )
