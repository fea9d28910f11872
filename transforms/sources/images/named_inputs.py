"""Finds the tables, lists and files of classes that options name among the inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.named_files import find_named


@dataclass(frozen=True, slots=True)
class NamedInputs:
    """The files of an input that options name.

    Attributes:
      tables, lists: (split, file) of each.
      label_map: the file of the classes, or None.
    """

    tables: tuple[tuple[str, InputFile], ...] = ()
    lists: tuple[tuple[str, InputFile], ...] = ()
    label_map: InputFile | None = None

    @property
    def paths(self) -> frozenset[str]:
        """Returns the paths of all of them."""
        files = [file for _, file in (*self.tables, *self.lists)]
        files += [self.label_map] if self.label_map else []
        return frozenset(file.path for file in files)


def find_named_inputs(asked: AskedLabels, files: Sequence[InputFile]) -> NamedInputs:
    """Returns the tables, lists and classes among the files of an input.

    Raises:
      InputError: one of them is not there, or cannot be read.
    """

    def find(option: str, name: str) -> list[InputFile]:
        found = find_named(name, files)
        if not found:
            raise InputError(f"`{option}`: no input file is named {name!r}")
        for each in found:
            if each.problem:
                raise InputError(f"`{option}`: {each.uri}: {each.problem}")
        return found

    def of_splits(
        option: str, named: Iterable[tuple[str, str]]
    ) -> tuple[tuple[str, InputFile], ...]:
        return tuple((split, f) for split, name in named for f in find(option, name))

    label_map = find("label_map", asked.label_map)[0] if asked.label_map else None
    return NamedInputs(
        of_splits("label_table", asked.tables),
        of_splits("split_lists", asked.lists),
        label_map,
    )
