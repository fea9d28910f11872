"""Defines an option: what the declaration of each says (options.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# convert: the command's options; run: those of `run` and `plan`, which replace what a
# job file says; job_file; pipeline: WriteDataset's arguments; template: Dataflow's.
Front = Literal["convert", "run", "job_file", "pipeline", "template"]
Kind = Literal[
    "text",
    "file",
    "folder",
    "flag",
    "integer",
    "choice",
    "size",
    "memory",
    "name",
    "version",
    "limit",
    "splits",
    "split_times",
    "inputs",
    "globs",
    "source",
    "schema",
    "function",
    "storage",
    "beam",
    "params",
    "settings",
]
Default = str | int | bool | dict[str, str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option.

    Attributes:
      name: as job files and Python spell it.
      kind: what its values are.
      help: one sentence for all front ends, without its full stop.
      fronts: the front ends that offer it.
      default: what holds if it is not given; None if that is not one value.
      default_text: the default in words, where `default` does not tell it; texts name
        other options in backticks.
      choices: all values, of a choice.
      minimum, maximum: bounds of an integer, both included.
      flag: the command's spelling without "--", where it is not the name.
      metavar: how the command's help shows a value.
      label: title in the template's form.
      group: heading in the template's form and in docs/options.md.
      pattern: regular expression of a value in the template's form.
      page: of docs/, with more about it.
    """

    name: str
    kind: Kind
    help: str
    fronts: frozenset[Front]
    default: Default = None
    default_text: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    flag: str = ""
    metavar: str = ""
    label: str = ""
    group: str = ""
    pattern: str = ""
    page: str = ""

    @property
    def command_flag(self) -> str:
        """Returns what the command takes: "--" and words with "-" between."""
        return f"--{self.flag or self.name.replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Returns its name among the parameters of the Dataflow template."""
        return self.command_flag.removeprefix("--").replace("-", "_")

    @property
    def is_repeated(self) -> bool:
        """Tests whether the command takes it several times."""
        return self.kind in ("splits", "globs", "storage", "settings")

    @property
    def shown_default(self) -> str:
        """Returns the default as people read it, or ""."""
        if self.default_text or self.default is None:
            return self.default_text
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return str(self.default)


def fronts_of(letters: str) -> frozenset[Front]:
    """Returns the front ends that the letters of a text like "CJ" stand for."""
    fronts: dict[str, Front] = {
        "C": "convert",
        "R": "run",
        "J": "job_file",
        "P": "pipeline",
        "T": "template",
    }
    return frozenset(fronts[letter] for letter in letters)
