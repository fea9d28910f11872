"""What a run took its input for: told before and after it, so that mistakes are seen.

A source that finds semicolons where commas should be, or classes named like splits, has
still done what it was asked to do. Only a person can tell that it is wrong, so every run
says in plan, summary, JSON and run.json what it understood, and warns of what looks odd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import count

DUPLICATES = "duplicates"  # the fact that tells what was found of them
CLASSES = "classes"
BY_FOLDER = "splits by folder"

# Facts that count files before they are read, and so those that are rejected, too.
_FILES = ("images", "audio files", "text files")
_BY_SPLIT = tuple(f"{files} by split" for files in _FILES)
_COUNTS = frozenset((CLASSES, BY_FOLDER, *_FILES, *_BY_SPLIT))

# All kinds of warnings. Programs read them, and docs/jobs.md lists them: one that is
# published keeps its name and its meaning.
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
    # what comes out
    "empty-split",
    "duplicates",
    "reject-limit",
    "full-disk",
    "linked-version",
]


_LISTED = 10  # warnings, in an error


class InputWarning(NamedTuple):
    """What looks wrong."""

    code: WarningCode  # what kind it is, for programs
    message: str  # where, what, and the way out

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class SkippedFiles:
    """Input files that no row comes from, for one reason."""

    reason: str  # in words, after "3 files: "
    files: int  # how many
    example: str  # path of one of them

    @staticmethod
    def counted(found: Iterable[tuple[str, str]]) -> tuple[SkippedFiles, ...]:
        """Counts (reason, path) by reason, the commonest first."""
        examples: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for reason, path in found:
            counts[reason] += 1
            examples.setdefault(reason, path)
        return tuple(
            SkippedFiles(reason, files, examples[reason])
            for reason, files in counts.most_common()
        )


@dataclass(frozen=True, slots=True)
class InputSummary:
    """What a source took its input for."""

    # (name, value) in words, such as ("delimiter", "comma")
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[InputWarning, ...] = ()
    passed_over: tuple[SkippedFiles, ...] = ()  # files that no row comes from

    def with_warnings(self, more: Iterable[InputWarning]) -> Self:
        """Returns the same with more warnings, each once."""
        return replace(self, warnings=tuple(dict.fromkeys((*self.warnings, *more))))

    def require_no_warnings(self) -> None:
        """Refuses to publish what a run with the option `strict` warns of."""
        if not self.warnings:
            return
        codes = Counter(each.code for each in self.warnings).items()
        named = ", ".join(code if n == 1 else f"{n:,} x {code}" for code, n in codes)
        lines = [f"\n  {each}" for each in self.warnings[:_LISTED]]
        if more := len(self.warnings) - len(lines):
            lines.append(f"\n  and {more:,} more")
        raise InputError(
            f"{count(len(self.warnings), 'warning')} ({named}), and `strict` allows "
            f"none:{''.join(lines)}\nChange what they name, or run without `strict`"
        )

    def updated(self, later: InputSummary) -> InputSummary:
        """Returns the same with what was found later: new values of facts, warnings."""
        facts = tuple((dict(self.facts) | dict(later.facts)).items())
        passed_over = later.passed_over or self.passed_over
        more = replace(self, facts=facts, passed_over=passed_over)
        return more.with_warnings(later.warnings)

    def of_input(self) -> Self:
        """Returns the same with counts marked as the input's: the dataset has others.

        >>> InputSummary((("classes", "2 (cat 1, dog 4)"),)).of_input().lines()
        ['classes: 2 (cat 1, dog 4) in the input']
        """

        def marked(name: str, value: str) -> str:
            counts = name in _COUNTS and any(map(str.isdigit, value))
            return f"{value} in the input" if counts else value

        facts = tuple((name, marked(name, value)) for name, value in self.facts)
        return replace(self, facts=facts)

    def spelled(self, spell: Callable[[str], str]) -> Self:
        """Returns the same with options in the warnings as a front end spells them."""
        told = (InputWarning(code, spell(text)) for code, text in self.warnings)
        return replace(self, warnings=tuple(told))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Returns what `to_dict` gave; what is missing is empty."""
        return cls(
            facts=tuple((str(k), str(v)) for k, v in found.get("facts", {}).items()),
            warnings=tuple(InputWarning(**each) for each in found.get("warnings", ())),
            passed_over=tuple(
                SkippedFiles(**each) for each in found.get("passed_over", ())
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            "facts": dict(self.facts),
            "warnings": [each._asdict() for each in self.warnings],
            "passed_over": list(map(asdict, self.passed_over)),
        }

    def lines(self) -> list[str]:
        """Returns lines for people, without the warnings."""
        facts = [f"{name}: {value}" for name, value in self.facts]
        return facts + [
            f"skipped: {count(each.files, 'file')} ({each.reason}), such as "
            f"{each.example}"
            for each in self.passed_over
        ]


NOTHING = InputSummary()
