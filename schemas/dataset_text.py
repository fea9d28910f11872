"""Parses small text files of a dataset: run.json, rejects, latest.json, labels files.

The manifest (manifest.py) and the lists of inputs (transforms/commit/inputs.py) have
modules of their own. All of them raise the error of `foreign_text`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Annotated, Any, Final, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from recordmill.schemas.foreign_text import ForeignModel, ForeignText
from recordmill.schemas.input_summary import (
    InputReport,
    InputWarning,
    SkippedFiles,
    WarningCode,
)
from recordmill.schemas.job import Version
from recordmill.schemas.names import parse_labels
from recordmill.schemas.ranges import Reject, RejectCode
from recordmill.schemas.source_options import SOURCE_PATTERN
from recordmill.schemas.text import escape_surrogates

_RESTORE_ADVICE: Final = (
    "Copy the file again from the original dataset, or convert again with "
    "`overwrite=true`"
)
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Warning(ForeignModel):
    code: str
    message: str


class _SkippedFiles(ForeignModel):
    reason: str
    files: _Count
    example: str


class _StoredInputReport(ForeignModel):
    """The input report in run.json, as `InputReport.to_dict` writes it."""

    facts: dict[str, str] = Field(default={})
    warnings: tuple[_Warning, ...] = ()
    passed_over: tuple[_SkippedFiles, ...] = ()


class RunMetadata(ForeignModel):
    """The fields of run.json that recordmill reads.

    `input_root` distinguishes runs and is never opened.
    """

    input_root: str = ""
    # name of the input format; "" if it is not known
    source: Annotated[str, Field(pattern=f"{SOURCE_PATTERN}|^$")] = ""
    understood: _StoredInputReport = _StoredInputReport()

    @property
    def input_report(self) -> InputReport:
        """Returns the input report of the run."""
        understood = self.understood
        return InputReport(
            fields=tuple(understood.facts.items()),
            warnings=tuple(
                InputWarning(cast("WarningCode", warning.code), warning.message)
                for warning in understood.warnings
            ),
            skipped_files=tuple(
                SkippedFiles(files.reason, files.files, files.example)
                for files in understood.passed_over
            ),
        )


def parse_run_metadata(content: bytes, location: str) -> RunMetadata:
    """Parses run.json, or the same fields of an unpublished run.

    Raises:
      OutputRefusedError: the file is damaged.
    """
    advice = f"{_RESTORE_ADVICE}. The dataset can be read without this file: remove it"
    return ForeignText(location, "file about a run", advice).parse(RunMetadata, content)


def _escape_text(text: Any) -> Any:
    """Escapes text that cannot be encoded as UTF-8; returns other values unchanged."""
    return escape_surrogates(text) if isinstance(text, str) else text


def _decode_base64(text: Any) -> bytes:
    """Decodes a text in base64; raises ValueError if it is invalid."""
    if not isinstance(text, str):
        raise ValueError("expected text in base64")
    return b64decode(text, validate=True)


# Reasons quote cells, and paths come from a file system. Both can have surrogates, which
# are escapes in the JSON of a reject.
_Text = Annotated[str, BeforeValidator(_escape_text)]
_Base64 = Annotated[bytes, BeforeValidator(_decode_base64)]


class _StoredReject(ForeignModel):
    """A line of a rejects file."""

    uri: _Text | None
    position: _Count | None
    code: RejectCode = "row"
    reason: _Text
    raw: _Base64

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        if (self.uri is None) != (self.position is None):
            raise ValueError("expected uri and position, or null for both")
        return self


def parse_reject(line: bytes, location: str) -> Reject:
    """Parses a line of a rejects file; a row of a pipeline has an empty path.

    Raises:
      OutputRefusedError: the line is damaged.
    """
    text = ForeignText(location, "valid reject", _RESTORE_ADVICE)
    with text.parsing():
        # Not parsed by pydantic, which rejects JSON with surrogates.
        stored = _StoredReject.model_validate(json.loads(line))
    return Reject(
        path=stored.uri or "",
        position=stored.position or 0,
        reason=stored.reason,
        raw=stored.raw,
        code=stored.code,
    )


class _Latest(ForeignModel):
    """The version to read in a folder of versions."""

    version: Version


def parse_latest(content: bytes, location: str) -> str:
    """Parses latest.json; returns the version that it names.

    Raises:
      OutputRefusedError: the file is damaged.
    """
    advice = "Remove the file and run again"
    return (
        ForeignText(location, "valid latest.json", advice)
        .parse(_Latest, content)
        .version
    )


def parse_class_names(content: bytes, location: str) -> tuple[str, ...]:
    """Parses the labels file of a dataset with `parse_labels`.

    Raises:
      OutputRefusedError: the file is damaged.
    """
    text = ForeignText(location, "labels file", _RESTORE_ADVICE)
    with text.parsing(lambda _: "expected lines of text in UTF-8"):
        return parse_labels(content)
