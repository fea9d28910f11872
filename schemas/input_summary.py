"""Defines the input report: how a run interpreted its input, with warnings.

A run can interpret an input wrongly and still succeed, for example with semicolons as the
delimiter, or with classes named like splits. Only a person can notice this. So every run
reports the interpretation in the plan, the summary, JSON and run.json, and warns about
suspicious input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import format_count

DUPLICATES = "duplicates"  # name of the fact about duplicates
CLASSES = "classes"
BY_FOLDER = "splits by folder"

# Facts that count files before they are read, so the counts include rejects.
_FILE_FACTS = ("images", "audio files", "text files")
_SPLIT_FACTS = tuple(f"{files} by split" for files in _FILE_FACTS)
_COUNT_FACTS = frozenset((CLASSES, BY_FOLDER, *_FILE_FACTS, *_SPLIT_FACTS))

# All warning codes. Programs read them, and docs/jobs.md lists them. A published code
# keeps its name and its meaning.
WarningCode = Literal[
    # the list of inputs
    "skipped-link",
    "output-in-input",
    "unused-exclude",
    # tables
    "doubtful-header",
    "comment-header",
    "single-column",
    "other-widths",
    "escaped-quotes",
    "odd-cells",
    "long-numbers",
    "number-marks",
    "unused-metadata",
    # labels, splits and files of images and audio
    "renumbered-labels",
    "single-class",
    "unused-class",
    "classes-like-splits",
    "classes-like-masks",
    "empty-folder",
    "no-class",
    "few-annotations",
    "unlisted-images",
    "unlisted-audio",
    "unlisted-text",
    "unsupported-images",
    "unsupported-audio",
    "unsupported-text",
    "reserved-column",
    "undecodable-images",
    "partial-images",
    # records and samples
    "other-features",
    "no-sample",
    "repeated-key",
    # the output
    "empty-split",
    "duplicates",
    "reject-limit",
    "full-disk",
    "linked-version",
]


_MAX_LISTED_WARNINGS = 10  # maximum number of warnings in an error


class InputWarning(NamedTuple):
    """A warning about input that looks wrong."""

    code: WarningCode  # the kind of warning, for programs
    message: str  # location, problem and fix

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class SkippedFiles:
    """Input files that were skipped for one reason."""

    reason: str  # reason as text, after "3 files: "
    num_files: int  # number of files
    example: str  # path of one file

    @staticmethod
    def count_by_reason(
        reasons_and_paths: Iterable[tuple[str, str]],
    ) -> tuple[SkippedFiles, ...]:
        """Counts pairs (reason, path) by reason, the most common reason first."""
        examples: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for reason, path in reasons_and_paths:
            counts[reason] += 1
            examples.setdefault(reason, path)
        return tuple(
            SkippedFiles(reason, files, examples[reason])
            for reason, files in counts.most_common()
        )


@dataclass(frozen=True, slots=True)
class InputReport:
    """A report of how a source interpreted its input."""

    # pairs (name, text), such as ("delimiter", "comma")
    fields: tuple[tuple[str, str], ...] = ()
    warnings: tuple[InputWarning, ...] = ()
    skipped_files: tuple[SkippedFiles, ...] = ()  # skipped files

    def with_warnings(self, more: Iterable[InputWarning]) -> Self:
        """Returns the report with more warnings, without repetitions."""
        return replace(self, warnings=tuple(dict.fromkeys((*self.warnings, *more))))

    def require_no_warnings(self) -> None:
        """Checks that there are no warnings, for the option `strict`.

        Raises:
          InputError: there are warnings.
        """
        if not self.warnings:
            return
        codes = Counter(warning.code for warning in self.warnings).items()
        code_counts = ", ".join(
            code if n == 1 else f"{n:,} x {code}" for code, n in codes
        )
        lines = [f"\n  {warning}" for warning in self.warnings[:_MAX_LISTED_WARNINGS]]
        if more := len(self.warnings) - len(lines):
            lines.append(f"\n  and {more:,} more")
        raise InputError(
            f"{format_count(len(self.warnings), 'warning')} ({code_counts}), and `strict` allows "
            f"none:{''.join(lines)}\n"
            "Fix their causes, or run without `strict`"
        )

    def merged_with(self, later_report: InputReport) -> InputReport:
        """Returns the report, updated with facts, warnings and files of a later one."""
        facts = tuple((dict(self.fields) | dict(later_report.fields)).items())
        passed_over = later_report.skipped_files or self.skipped_files
        more = replace(self, fields=facts, skipped_files=passed_over)
        return more.with_warnings(later_report.warnings)

    def with_input_counts(self) -> Self:
        """Returns the report with counts marked as counts of the input, not the dataset.

        >>> InputReport((("classes", "2 (cat 1, dog 4)"),)).with_input_counts().to_lines()
        ['classes: 2 (cat 1, dog 4) in the input']
        """

        def marked(name: str, text: str) -> str:
            counts = name in _COUNT_FACTS and any(map(str.isdigit, text))
            return f"{text} in the input" if counts else text

        facts = tuple((name, marked(name, text)) for name, text in self.fields)
        return replace(self, fields=facts)

    def with_spelling(self, spell: Callable[[str], str]) -> Self:
        """Returns the report with options in warnings as a front end spells them."""
        spelled_warnings = (
            InputWarning(code, spell(text)) for code, text in self.warnings
        )
        return replace(self, warnings=tuple(spelled_warnings))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Returns a report from its JSON form; missing fields are empty."""
        return cls(
            fields=tuple((str(k), str(v)) for k, v in fields.get("facts", {}).items()),
            warnings=tuple(
                InputWarning(**warning) for warning in fields.get("warnings", ())
            ),
            skipped_files=tuple(
                SkippedFiles(skipped["reason"], skipped["files"], skipped["example"])
                for skipped in fields.get("passed_over", ())
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON form of the report."""
        return {
            "facts": dict(self.fields),
            "warnings": [warning._asdict() for warning in self.warnings],
            "passed_over": [
                {
                    "reason": skipped.reason,
                    "files": skipped.num_files,
                    "example": skipped.example,
                }
                for skipped in self.skipped_files
            ],
        }

    def to_lines(self) -> list[str]:
        """Returns the report as lines of text, without the warnings."""
        facts = [f"{name}: {text}" for name, text in self.fields]
        return facts + [
            f"skipped: {format_count(skipped.num_files, 'file')} ({skipped.reason}), "
            f"such as {skipped.example}"
            for skipped in self.skipped_files
        ]


EMPTY_REPORT = InputReport()
