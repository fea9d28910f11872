"""Offers lines of text as an input format; without Arrow, so that help is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.sources.registry import SourceFormat, SourceRequest

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


class LinesOptions(SourceOptions):
    """Options of lines of text."""

    min_length: int = Field(1, ge=0, description="bytes; shorter lines are left out")


def make_source(options: LinesOptions, request: SourceRequest) -> Source:
    """Makes the source of lines of text."""
    from recordmill_lines.source import LinesSource

    return LinesSource(min_length=options.min_length, storage=request.storage)


FORMAT = SourceFormat(
    name="lines",
    summary="A record for each line of a text file.",
    options=LinesOptions,
    make_source=make_source,
)
