"""Python expressions as text, broken over lines where Black would break them."""

from __future__ import annotations

from dataclasses import dataclass

LINE_LENGTH = 88
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Call:
    """What stands in brackets, and what before: a call, a list, a keyword argument.

    Attributes:
      head: the text up to the opening bracket, with it.
      items: what is between commas.
      tail: the closing bracket, and what follows.
      subscript: whether a comma behind the last item would change the meaning.
    """

    head: str
    items: tuple[Code, ...]
    tail: str = ")"
    subscript: bool = False

    def __str__(self) -> str:
        return f"{self.head}{', '.join(map(str, self.items))}{self.tail}"


Code = str | Call


def call(function: str, *items: Code) -> Call:
    """A call of a function."""
    return Call(f"{function}(", items)


def listed(items: tuple[Code, ...], keyword: str = "") -> Call:
    """A list, perhaps as a keyword argument."""
    return Call(f"{keyword}=[" if keyword else "[", items, "]")


def quoted(value: str | bytes) -> str:
    """The value's repr, in double quotes where that needs no more escapes.

    >>> print(quoted("it's"), quoted('say "x"'))
    "it's" 'say "x"'
    """
    plain = repr(value)
    quote = plain[-1]
    if quote == "'" and '"' not in plain:
        start = plain.index(quote)
        return f'{plain[:start]}"{plain[start + 1 : -1]}"'
    return plain


def lines_of(code: Code, indent: int, before: str = "", after: str = "") -> list[str]:
    """The expression between two texts, on as many lines as it needs.

    Args:
      code: the expression.
      indent: columns that the lines are set in by.
      before: what the first line begins with.
      after: what the last line ends with.
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
        for line in lines_of(item, indent + _INDENT, after=",")
    ]
    return [first, *items, last]


def assignment_lines(target: str, code: Call, indent: int) -> list[str]:
    """`target = code`, in brackets of its own if not even its head fits beside it."""
    lines = lines_of(code, indent, before=f"{target} = ")
    if len(lines) == 1 or len(lines[0]) <= LINE_LENGTH:
        return lines
    margin = " " * indent
    return [f"{margin}{target} = (", *lines_of(code, indent + _INDENT), f"{margin})"]
