"""Tells which tests reach a line of a module, and how long they take."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mutants import Mutant

TEST_SECONDS = 8.0  # of the tests of one mutant, the quickest ones


@dataclass(frozen=True)
class Survey:
    """Which tests reach what.

    Attributes:
      seconds: processor time of each test.
      lines: tests by module and line; at the top of a module there are none.
      imported: the modules that were imported.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]
    imported: list[str]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Lists tests that reach a mutant's statement, the quickest first."""
        lines = self.lines[mutant.module]
        span = _statement_at(ast.parse(mutant.original), mutant.line)
        if span is None:
            reached = {test for tests in lines.values() for test in tests}
        else:
            reached = {test for line in span for test in lines.get(line, ())}
        found, total = [], 0.0
        for test in sorted(reached, key=lambda test: self.seconds.get(test, 0.0)):
            total += self.seconds.get(test, 0.0)
            if total > TEST_SECONDS and found:
                break
            found.append(test)
        return found


def join(surveys: Iterable[Survey]) -> Survey:
    """Joins what several runs found."""
    joined = Survey({}, defaultdict(lambda: defaultdict(list)), [])
    for each in surveys:
        joined.seconds.update(each.seconds)
        joined.imported.extend(each.imported)
        for module, lines in each.lines.items():
            for line, tests in lines.items():
                joined.lines[module][line] += tests
    return joined


def _statement_at(module: ast.Module, line: int) -> range | None:
    """Returns the lines of the statement in a function; None outside of functions."""
    best: range | None = None
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        for each in node.body:
            for statement in ast.walk(each):
                if isinstance(statement, ast.stmt | ast.ExceptHandler | ast.match_case):
                    span = _own_lines(statement)
                    if line in span and (best is None or len(span) < len(best)):
                        best = span
    return best


def _own_lines(statement: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    """Returns the lines of a statement, without those of the block below it."""
    if isinstance(statement, ast.match_case):
        return range(statement.pattern.lineno, statement.body[0].lineno)
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or 0) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))
