"""Reads the cases of the oracle from cases.txt.

A section begins with a line "== GROUP NAME", and has

    + PATH<tab>CONTENT   a file of each case; + * CONTENT: a dict of several
    $ COMMAND            a command of recordmill, with out as its output
    $?EXPRESSION? ...    only where that is true
    $kN ... $q ... $<FILE ...  killed at change N of the disk; only its status counts; stdin
    $py PROGRAM          a program
    ! VERB<tab>PATH...   what happens between commands: cp, rm, write, damage

and then a row for each case: fields between tabs, which stand for {0}, {1} and so on above;
{~0} is a field as part of a name. "-" is an empty row, "@NAME" are the rows of the section
"== @NAME". "& GROUP NAME" begins another case for the same rows. Text has escapes; "eval:"
is an expression with the names of case_inputs.py, where f are the fields, {=...} another.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case_inputs

# Commands after which most modules are imported.
WARM_UP = [
    "convert csv ../../samples/iris/iris.csv out",
    "convert images ../../samples/images out --resize 8x8",
    "convert parquet ../../samples/typed/iris.parquet out --exchange engine",
    *(f"convert {name} --help" for name in ("csv", "images", "binary", "tfrecord")),
]
HEAD = re.compile(r"(== |& |\+ |\$|! )")


def value(text: str, fields: list[Any]) -> Any:
    """Returns what a text of cases.txt stands for."""
    if text.startswith("eval:"):
        return eval(text[5:], vars(case_inputs) | {"f": fields})
    if text.startswith("bytes:"):
        return text[6:].encode().decode("unicode_escape").encode("latin-1")
    if re.fullmatch(r"\{\d\}", text):
        return fields[int(text[1])] if int(text[1]) < len(fields) else ""
    return filled(text.encode().decode("unicode_escape"), fields)


def filled(text: str, fields: list[Any]) -> str:
    """Returns a text with its fields."""

    def one(found: re.Match[str]) -> str:
        if found[0][1] == "=":
            return str(eval(found[0][2:-1], vars(case_inputs) | {"f": fields}))
        field = str(
            fields[int(found[0][-2])] if int(found[0][-2]) < len(fields) else ""
        )
        if found[0][1] != "~":
            return field
        slug = field.replace("--", "").replace(" ", "-").replace("/", "_")[:40]
        return slug or "plain"

    return re.sub(r"\{~?\d\}|\{=[^}]*\}", one, text)


def commands_of(line: str, fields: list[Any]) -> Iterator[dict[str, Any]]:
    """Yields the command of a line, unless its condition is false."""
    sign, rest = line[0], line[1:]
    if sign == "!":
        yield {"do": [value(part, fields) for part in rest.strip(" ").split("\t")]}
        return
    if rest.startswith("?"):
        condition, rest = rest[1:].split("?", 1)
        if not value(f"eval:{condition}", fields):
            return
    mark, _, text = rest.partition(" ")
    if mark == "py":
        yield {"python": value(text, fields)}
        return
    command: dict[str, Any] = {"args": shlex.split(filled(text, fields))}
    if mark.startswith("k"):
        command["die_at"] = int(filled(mark[1:], fields))
    elif mark == "q":
        command["quiet"] = True
    elif mark.startswith("<"):
        command["stdin"] = mark[1:]
    yield command


def sections() -> Iterator[tuple[list[list[str]], list[list[Any]]]]:
    """Yields the templates of each section, and its rows."""
    text = (Path(__file__).parent / "cases.txt").read_text()
    named: dict[str, list[list[Any]]] = {}
    for part in text.split("\n== ")[1:]:
        templates: list[list[str]] = []
        rows: list[list[Any]] = []
        for line in ("== " + part).rstrip("\n").split("\n"):
            if line.startswith(("== ", "& ")):
                templates.append([line.partition(" ")[2]])
            elif HEAD.match(line):
                templates[-1].append(line)
            elif line.startswith("@"):
                rows += named[line]
            else:
                parts = [] if line == "-" else line.split("\t")
                rows.append([value(each, parts) for each in parts])
        if templates[0][0].startswith("@"):
            named[templates[0][0]] = rows
        else:
            yield templates, rows or [[]]


def all_cases() -> Iterator[dict[str, Any]]:
    """Yields all cases, numbered in their groups."""
    counts: dict[str, int] = {}
    for templates, rows in sections():
        for fields in rows:
            for head, *lines in templates:
                group, _, name = filled(head, fields).partition(" ")
                counts[group] = number = counts.get(group, -1) + 1
                files: dict[str, bytes] = {}
                commands: list[dict[str, Any]] = []
                for line in lines:
                    if line[0] != "+":
                        commands += commands_of(line, fields)
                        continue
                    path, _, text = line[2:].partition("\t")
                    data = value(text, fields)
                    more = data if path == "*" else {filled(path, fields): data}
                    files |= {
                        each: content.encode() if isinstance(content, str) else content
                        for each, content in more.items()
                    }
                yield {
                    "name": f"{group}/{number:03}-{name}",
                    "files": files,
                    "commands": commands,
                }
