"""Spells the options that messages name as the reader has typed or can type them.

Messages name an option in backticks: "raise `max_rejects`", "use `exchange=auto`".
"""

from __future__ import annotations

import re
from typing import Literal

from recordmill.schemas.job.option import Option
from recordmill.schemas.job.options import BY_NAME

Style = Literal["command", "job_file", "python"]

_MARKED = re.compile(r"`([a-z][a-z_]*)(?:=([^`\s]+))?`")
_POSITIONAL = {"inputs": "INPUT", "output": "OUTPUT"}  # of convert


def spell(message: str, style: Style) -> str:
    """Replaces the options that a message names in backticks by their spelling.

    A name that is not declared here is taken for an option of one input format.

    >>> message = "raise `max_rejects`, or use `shuffle=false` and `exchange=auto`"
    >>> spell(message, "command")
    'raise --max-rejects, or use --no-shuffle and --exchange auto'
    >>> spell(message, "job_file")
    'raise max_rejects:, or use shuffle: false and exchange: auto'
    >>> spell(message, "python")
    "raise max_rejects=, or use shuffle=False and exchange='auto'"
    """

    def spelled(found: re.Match[str]) -> str:
        option = BY_NAME.get(found[1]) or _own_option(found[1])
        return _spell_one(option, found[2] or "", style)

    return _MARKED.sub(spelled, message)


def _spell_one(option: Option, value: str, style: Style) -> str:
    is_flag = option.kind == "flag"
    if style == "command" or (style == "job_file" and "job_file" not in option.fronts):
        if option.name in _POSITIONAL:
            return _POSITIONAL[option.name]
        flag = option.command_flag
        if is_flag and value:
            return flag if value == "true" else flag.replace("--", "--no-", 1)
        return f"{flag} {value}" if value else flag
    if style == "job_file":
        return f"{option.name}: {value}" if value else f"{option.name}:"
    if is_flag and value:
        value = value.capitalize()
    elif value and option.kind != "integer":
        value = repr(value)
    return f"{option.name}={value}"


def _own_option(name: str) -> Option:
    return Option(
        name=name, kind="text", help="", fronts=frozenset({"convert", "job_file"})
    )
