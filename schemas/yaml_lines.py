"""Reads and writes YAML text as plain Python values, without the traps of YAML.

Text is read by YAML 1.2's core schema (yaml.org/spec/1.2.2, 10.3), not by PyYAML's 1.1:
`no`, `on`, `12:30` and `2024-01-01` are text and `1e-3` is a number. Further differences:

- A repeated key is an error; PyYAML silently keeps the last one.
- A number with leading zeros (007) is text, because a number would lose the zeros.
- Keys are text as written; only plain values are created, never Python objects.
- Depth, number of values and digits of an integer are limited, and any failure of the
  parser is a SchemaError with a line: the text may be damaged or hostile.

YAML 1.1 and 1.2 read written text in the same way: text that either version would parse
as another type is quoted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.input_text import describe_failure
from recordmill.schemas.storage_options import redact_secrets
from recordmill.schemas.text import escape_json

KeyPath = Sequence[str | int]  # keys and indices from the document's root

_TAG_PREFIX = "tag:yaml.org,2002:"
_MAX_NODES = 1_000_000  # aliases of aliases could exceed the memory
_MAX_LEVELS = 100  # maximum depth of nested lists and mappings
_DEPTH_PROBLEM = f"lists or mappings nested more than {_MAX_LEVELS} levels deep"
_MAX_DIGITS = 4000  # maximum length of an integer; the limit of int() is 4,300
_SCALAR_PATTERNS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}

# Parsers of scalars by tag.
_SCALAR_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": lambda text: _parse_integer(text),
    "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    "binary": lambda text: base64.b64decode("".join(text.split()), validate=True),
}


def _parse_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(
            f"an integer of {len(text):,} digits, expected at most {_MAX_DIGITS}"
        )
    return int(text, 0)


class _Reader(yaml.SafeLoader):
    """A parser of text into nodes, from which this module creates values."""

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012  without the ones of YAML 1.1

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = self._num_nodes = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._level += 1
        self._num_nodes += 1
        limit = ""
        if self._level > _MAX_LEVELS:
            limit = _DEPTH_PROBLEM
        elif self._num_nodes > _MAX_NODES:
            limit = f"more than {_MAX_NODES:,} values"
        if limit:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            mark = event.start_mark
            raise yaml.MarkedYAMLError(problem=limit, problem_mark=mark)
        node: Node | None = super().compose_node(parent, index)
        self._level -= 1
        return node


class _Writer(yaml.SafeDumper):
    """A SafeDumper that knows the types of YAML 1.1 and 1.2, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(writer: _Writer, text: str) -> ScalarNode:
    # YAML has more line ends than "\n"; escapes are unambiguous.
    style = None if text.isprintable() else '"'
    return writer.represent_scalar(_TAG_PREFIX + "str", text, style)


_Writer.add_representer(str, _represent_text)
for _name, _pattern in _SCALAR_PATTERNS.items():
    for _class in (_Reader, _Writer):
        _class.add_implicit_resolver(
            _TAG_PREFIX + _name, re.compile(rf"(?:{_pattern})\Z"), [None]
        )


class YamlDocument:
    """A YAML document, with its value and the line of each of its parts."""

    def __init__(self, content: bytes, uri: str) -> None:
        """Parses a document.

        Raises:
          SchemaError: the text is no YAML, with the line.
        """
        self._uri = uri
        self._root = _parse_nodes(content, uri)

    @cached_property
    def value(self) -> Any:
        """Returns the value of the document.

        Raises:
          SchemaError: a scalar does not fit its tag, or a key is repeated.
        """
        self._num_remaining_nodes = _MAX_NODES
        return self._build_value(self._root, self._parse_scalar, ())

    def written_value(self) -> Any:
        """Returns the value with every scalar as written text, and None for null."""
        self._num_remaining_nodes = _MAX_NODES
        return self._build_value(self._root, _scalar_text, ())

    def line_of(self, path: KeyPath) -> int:
        """Returns the line (from 1) of a part, or of its nearest existing parent."""
        node = nearest_node = self._root
        for step in path:
            if isinstance(node, MappingNode):
                pairs = [pair for pair in node.value if pair[0].value == step]
                if not pairs:
                    break
                nearest_node, node = pairs[0]
            elif isinstance(node, SequenceNode) and isinstance(step, int):
                if not 0 <= step < len(node.value):
                    break
                nearest_node = node = node.value[step]
            else:
                break
        return _line_number(nearest_node)

    def _build_value(
        self, node: Node, scalar: Callable[[ScalarNode], Any], above: tuple[Node, ...]
    ) -> Any:
        self._num_remaining_nodes -= 1
        if node in above or self._num_remaining_nodes < 0:
            raise self._create_error(
                node, "aliases that contain themselves, or too many aliases"
            )
        if len(above) > _MAX_LEVELS:  # aliases of aliases
            raise self._create_error(node, _DEPTH_PROBLEM)
        if isinstance(node, ScalarNode):
            return scalar(node)
        above = (*above, node)
        if isinstance(node, SequenceNode) and node.tag == _TAG_PREFIX + "seq":
            return [
                self._build_value(item_node, scalar, above) for item_node in node.value
            ]
        if not isinstance(node, MappingNode) or node.tag != _TAG_PREFIX + "map":
            raise self._unknown_tag(node)
        mapping: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value_node in node.value:
            if not isinstance(key, ScalarNode):
                raise self._create_error(
                    key, "a key must be text, found a list or a mapping"
                )
            if key.value in mapping:
                first = lines[key.value]
                raise self._create_error(
                    key, f"{key.value!r} is given twice, first on line {first}"
                )
            mapping[key.value] = self._build_value(value_node, scalar, above)
            lines[key.value] = _line_number(key)
        return mapping

    def _parse_scalar(self, node: ScalarNode) -> Any:
        tag, text = node.tag.removeprefix(_TAG_PREFIX), node.value
        if (parse := _SCALAR_PARSERS.get(tag)) is None:
            raise self._unknown_tag(node)
        try:
            return parse(text)
        except (ValueError, KeyError) as error:
            problem = f"{text[:40]!r} is not a valid {tag}"
            if len(text) > _MAX_DIGITS and tag == "int":
                problem = str(error)
            # Without the original error as cause, because it can show a secret.
            raise self._create_error(node, problem) from None

    def _unknown_tag(self, node: Node) -> SchemaError:
        tag = node.tag.replace(_TAG_PREFIX, "!!")
        return self._create_error(node, f"the tag {tag} is not supported")

    def _create_error(self, node: Node, problem: str) -> SchemaError:
        location = f"{self._uri}: line {_line_number(node)}"
        return SchemaError(f"{location}: {redact_secrets(problem)}")


def write_yaml(document: Any, *, flow: bool) -> str:
    """Formats the value as YAML text with a newline at its end.

    `flow` puts it on one line. Text with characters that could control a terminal is in
    double quotes, in which YAML supports the escapes of JSON.
    """
    text: str = yaml.dump(
        document,
        Dumper=_Writer,
        default_flow_style=flow,
        width=float("inf"),
        sort_keys=False,
        allow_unicode=True,
    )
    return escape_json(text)


def _parse_nodes(content: bytes, uri: str) -> Node:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SchemaError(
            f"{uri}: line {line}: byte 0x{content[error.start]:02x} is not UTF-8; save the "
            "file as UTF-8"
        ) from error
    try:
        node = _Reader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise SchemaError(f"{uri}: {location}not valid YAML: {problem}") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SchemaError(
            f"{uri}: line {line}: not valid YAML: the character "
            f"U+{ord(text[error.position]):04X} is not allowed"
        ) from error
    except Exception as error:  # PyYAML fails for "\UFFFFFFFF" or a long version number
        raise SchemaError(
            f"{uri}: not valid YAML: {describe_failure(error)}"
        ) from error
    if node is None:
        raise SchemaError(f"{uri}: is empty")
    return node


def _scalar_text(node: ScalarNode) -> str | None:
    return None if node.tag == _TAG_PREFIX + "null" else str(node.value)


def _line_number(node: Node) -> int:
    return int(node.start_mark.line) + 1
