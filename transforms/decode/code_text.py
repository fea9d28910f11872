"""Formats Python expressions as text, with line breaks where Black puts them."""

from __future__ import annotations

from dataclasses import dataclass

LINE_LENGTH = 88
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A bracketed expression as text: a call, a list or a keyword argument.

    Attributes:
      head: the text up to and including the opening bracket.
      items: the expressions between the commas.
      tail: the closing bracket and what follows.
      subscript: whether a comma after the last item would change the meaning.
    """

    head: str
    items: tuple[Code, ...]
    tail: str = ")"
    subscript: bool = False

    def __str__(self) -> str:
        return f"{self.head}{', '.join(map(str, self.items))}{self.tail}"


Code = str | Call


def call(function: str, *items: Code) -> Call:
    """Returns a call of a function."""
    return Call(f"{function}(", items)


def list_code(items: tuple[Code, ...], keyword: str = "") -> Call:
    """Returns a list, as a keyword argument if a keyword is given."""
    return Call(f"{keyword}=[" if keyword else "[", items, "]")


def quoted(value: str | bytes) -> str:
    """Returns the value's repr, in double quotes unless it contains some.

    >>> print(quoted("it's"), quoted('say "x"'))
    "it's" 'say "x"'
    """
    plain = repr(value)
    quote = plain[-1]
    if quote == "'" and '"' not in plain:
        start = plain.index(quote)
        return f'{plain[:start]}"{plain[start + 1 : -1]}"'
    return plain


def format_lines(
    code: Code, indent: int, before: str = "", after: str = ""
) -> list[str]:
    """Formats an expression on as many lines as it needs.

    Args:
      code: the expression.
      indent: indentation of the lines, in columns.
      before: text at the start of the first line.
      after: text at the end of the last line.
    """
    margin = " " * indent
    line = f"{margin}{before}{code}{after}"
    if isinstance(code, str) or not code.items or len(line) <= LINE_LENGTH:
        return [line]
    first, last = f"{margin}{before}{code.head}", f"{margin}{code.tail}{after}"
    inner = f"{margin}{' ' * _INDENT}{', '.join(map(str, code.items))}"
    if len(inner) <= LINE_LENGTH or code.subscript:
        return [first, inner, last]
    items = [
        line
        for item in code.items
        for line in format_lines(item, indent + _INDENT, after=",")
    ]
    return [first, *items, last]


def format_assignment(target: str, code: Call, indent: int) -> list[str]:
    """Formats `target = code`, in extra brackets if even the first line is too long."""
    lines = format_lines(code, indent, before=f"{target} = ")
    if len(lines) == 1 or len(lines[0]) <= LINE_LENGTH:
        return lines
    margin = " " * indent
    return [
        f"{margin}{target} = (",
        *format_lines(code, indent + _INDENT),
        f"{margin})",
    ]
