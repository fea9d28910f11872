"""Offers SVHN's files as an input format; without Arrow, so that help is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.sources.registry import SourceFormat, SourceRequest

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: SourceOptions,  # noqa: ARG001 (there are none)
    request: SourceRequest,
) -> Source:
    """Makes the source of SVHN's files."""
    from recordmill_svhn.source import SvhnSource

    return SvhnSource(storage=request.storage)


FORMAT = SourceFormat(
    name="svhn",
    summary="SVHN's cropped digits (train_32x32.mat and the others).",
    options=SourceOptions,
    make_source=make_source,
    position_unit="row",
)
