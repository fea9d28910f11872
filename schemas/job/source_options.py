"""Holds the base class of the options that one input format has for itself.

A format's own options are a subclass, each field with its description; the command
line, job files and their JSON Schema take them from there. A format without options
uses the base class.

    class ImagesOptions(SourceOptions):
        feature_names: Literal["default", "tutorial"] = Field(
            "default", description="names of the features"
        )

Its module imports pydantic and recordmill.schemas only, because the command line
imports it to show its help. Options are part of the job: the same options and inputs
give the same bytes. Where a dataset keeps its job, options with their default value are
left out, so a format may get new options later, but never a new default for an old one.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SourceOptions(BaseModel):
    """Options of one input format; this class itself has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")
