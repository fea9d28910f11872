"""Fills the placeholders of a job file in, {{ date }} or {{ name }}, after parsing.

A value can only ever become the text of a scalar, or the scalar itself where the
placeholder stands alone, so no value changes the structure of the file. Where a
number or a boolean is wanted, "{{ shards }}" alone is what the value looks like.

Values come from the command (set KEY=VALUE), else from the file's own `params`, else {{ date }} is today.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.schemas.parsing.yaml_text import KeyPath, YamlDocument

_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
PARAMETER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Text that YAML can take for a scalar only: no indicator, no space, no quote.
_PLAIN = re.compile(r"[-+]?\.?\w[\w.+-]*", re.ASCII)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Parses the parameters given as KEY=VALUE.

    Raises:
      UsageError: one that is not of that form, or a key given twice.
    """
    values: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not PARAMETER.fullmatch(key):
            raise UsageError(f"`set`: expected KEY=VALUE, found {setting!r}")
        if key in values:
            raise UsageError(f"`set`: {key} is given twice")
        values[key] = value
    return values


def built_in(today: date) -> dict[str, str]:
    """Returns the parameters that every job file can use."""
    return {"date": today.isoformat()}


@dataclass(slots=True)
class Template:
    """Fills placeholders in, and notes what was used and what is wrong.

    Attributes:
      values: the text of every parameter that has one.
      required: parameters that the file declares without a value.
      used: the parameters met so far.
    """

    values: Mapping[str, str]
    required: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)

    def fill(
        self,
        value: Any,
        place: KeyPath,
        note: Callable[[KeyPath, str], None],
        *,
        as_text: bool,
    ) -> Any:
        """Returns a value with every placeholder filled in.

        Args:
          value: plain values as YamlDocument has them.
          place: where it stands in the file.
          note: takes the place and what is wrong there.
          as_text: whether a placeholder alone gives text, whatever it looks like.
        """
        if isinstance(value, dict):
            for key in value:
                if "{{" in key:
                    note((*place, key), "keys are never filled in, only values")
            return {
                key: self.fill(item, (*place, key), note, as_text=as_text)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.fill(item, (*place, index), note, as_text=as_text)
                for index, item in enumerate(value)
            ]
        if not isinstance(value, str) or "{{" not in value:
            return value
        try:
            alone = _PLACEHOLDER.fullmatch(value.strip())
            if alone and "{{" not in alone[1]:
                text = self._value(alone[1])
                return text if as_text else scalar_of(text)
            filled = _PLACEHOLDER.sub(lambda match: self._value(match[1]), value)
            if "{{" in _PLACEHOLDER.sub("", value):
                raise UsageError("a {{ without its }}")
        except UsageError as error:
            note(place, str(error))
            return value
        return filled

    def _value(self, inside: str) -> str:
        name = inside.strip()
        if name.split(".")[0] == "env":
            raise UsageError(
                f"{{{{ {name} }}}}: job files do not read the environment: secrets "
                "belong in the environment of the process, where storage finds them "
                "by itself, never in a job; other values come with `set`"
            )
        if not PARAMETER.fullmatch(name):
            raise UsageError(
                f"{{{{ {name} }}}}: expected one parameter's name between the braces, "
                "like {{ date }}"
            )
        self.used.add(name)
        if name in self.values:
            return self.values[name]
        near = get_close_matches(name, {*self.values, *self.required} - {name}, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"{{{{ {name} }}}} has no value: give one with `set` {name}=VALUE, or a "
            f"default in params{hint}"
        )


def scalar_of(text: str) -> Any:
    """Returns what a parameter's text is where a value of any type may stand.

    >>> scalar_of("8"), scalar_of("true"), scalar_of("2026-11-20"), scalar_of("a: b")
    (8, True, '2026-11-20', 'a: b')
    """
    if not _PLAIN.fullmatch(text):
        return text
    return YamlDocument(text.encode(), "set").value
