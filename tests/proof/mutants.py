"""Lists the mutants of a module: copies of it with one operator or number changed.

cosmic-ray finds them. Left out is what no test can notice, as nothing runs there: names
of types, and the settings of frozen dataclasses, which the type checker reads.
"""

from __future__ import annotations

import ast
import random
import tomllib
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any

from cosmic_ray.commands.init import _all_work_items  # type: ignore[import-not-found]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found]
from cosmic_ray.plugins import get_operator  # type: ignore[import-not-found]

KNOWN = Path(__file__).with_name("known_equivalents.toml")

Region = tuple[int, int, int, int]  # first line, column, last line, column behind it


@dataclass(frozen=True)
class Place:
    """Where something is changed, and how.

    Attributes:
      module: the file below the project's root.
      line: where the change is, from 1.
      operator: the kind of change.
    """

    module: str
    line: int
    operator: str


@dataclass(frozen=True)
class Change(Place):
    """A change that cosmic-ray can make.

    Attributes:
      occurrence: which of the places for this kind.
      options: of this kind.
    """

    occurrence: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Mutant(Place):
    """A module with one change.

    Attributes:
      original: the whole text.
      source: the whole changed text.
      was: the lines that were changed, without their indentation.
      now: what they became.
    """

    original: str
    source: str
    was: str
    now: str


def list_changes(root: Path, module: str) -> list[Change]:
    """Lists all changes of what runs in a module."""
    path = root / module
    unread = _unread_regions(path.read_text())
    found = []
    for item in _all_work_items([path], {}):
        spec = item.mutations[0]
        if not any(_is_within(spec.start_pos, region) for region in unread):
            kind = (spec.operator_name, spec.occurrence, spec.operator_args)
            found.append(Change(module, spec.start_pos[0], *kind))
    return sorted(found, key=lambda one: (one.line, one.operator, one.occurrence))


def draw(changes: list[Change], share: float, seed: int) -> list[Change]:
    """Draws a share of the changes, the same ones for the same seed."""
    number = max(2, round(share * len(changes)))
    return random.Random(seed).sample(changes, min(number, len(changes)))


def make_mutants(root: Path, changes: Iterable[Change]) -> list[Mutant]:
    """Makes changes, but for those after which a module is no Python or the same."""
    found = []
    for each in changes:
        text = (root / each.module).read_text()
        operator = get_operator(each.operator)(**each.options)
        source = None
        with suppress(AttributeError):  # a dotted exception among several
            source = mutate_code(text, operator, each.occurrence)
        if source is None or not _is_another_program(text, source):
            continue
        name = each.operator.removeprefix("core/")
        lines = _changed_lines(text, source)
        found.append(Mutant(each.module, each.line, name, text, source, *lines))
    return found


@dataclass(frozen=True)
class Equivalent:
    """A change that was read, and that makes no difference that a test could notice.

    Attributes:
      module: the file below the project's root.
      was: the lines that were changed, without their indentation.
      now: what they may become; nothing is for all changes of these lines.
      why: the reason.
    """

    module: str
    was: str
    now: tuple[str, ...]
    why: str

    def is_of(self, mutant: Mutant) -> bool:
        same = (self.module, self.was) == (mutant.module, mutant.was)
        return same and (not self.now or mutant.now in self.now)


def known_equivalents(path: Path = KNOWN) -> list[Equivalent]:
    """Reads the list of changes that were read and explained."""
    entries = tomllib.loads(path.read_text())["equivalent"]
    return [
        Equivalent(
            entry["module"], entry["was"], tuple(entry.get("now", ())), entry["why"]
        )
        for entry in entries
    ]


def _is_another_program(text: str, source: str) -> bool:
    """Tells whether a changed text still is Python, and not the same to Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "error"
            )  # as of `is "text"`, which the linter refuses
            compile(source, "", "exec")
    except SyntaxError:  # the star before arguments by name, taken for an operator
        return False
    return ast.dump(ast.parse(source)) != ast.dump(ast.parse(text))


def _changed_lines(text: str, source: str) -> tuple[str, str]:
    """Returns the lines that two texts do not share, of the first and of the second."""
    lines = list(ndiff(text.splitlines(), source.splitlines()))
    was, now = (
        "\n".join(
            line[2:].strip()
            for line in lines
            if line.startswith(sign) and line[2:].strip()
        )
        for sign in ("- ", "+ ")
    )
    return was, now


def _unread_regions(text: str) -> list[Region]:
    """Lists where types are named, and the decorators of dataclasses."""
    nodes: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AnnAssign | ast.arg):
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.ClassDef):
            nodes += node.decorator_list
    return list(_regions(nodes))


def _regions(nodes: Iterable[ast.expr | None]) -> Iterable[Region]:
    for node in nodes:
        if node is not None:
            end = (node.end_lineno or 0, node.end_col_offset or 0)
            # One before it: the sign of a decorator belongs to it.
            yield (node.lineno, node.col_offset - 1, *end)


def _is_within(position: tuple[int, int], region: Region) -> bool:
    return region[:2] <= position < region[2:]
