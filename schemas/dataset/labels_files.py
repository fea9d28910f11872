"""Names, formats and parses labels files: the class names of a feature, one a line."""

from __future__ import annotations

import json
from collections.abc import Iterable

LABELS_ENDING = ".labels.txt"


def labels_file_name(feature: str) -> str:
    """Returns the name of the file with a feature's class names.

    >>> labels_file_name("image/class/label")
    'image.class.label.labels.txt'
    """
    return feature.replace("/", ".") + LABELS_ENDING


def format_labels(names: Iterable[str]) -> bytes:
    """Formats class names as lines; as JSON strings where TFDS would change them."""
    return "".join(f"{_format_label(name)}\n" for name in names).encode()


def parse_labels(data: bytes) -> tuple[str, ...]:
    """Parses a labels file; returns its class names in the order of their index."""
    lines = [line.strip() for line in data.decode().split("\n")]
    return tuple(_parse_label(line) for line in lines if line)


def _format_label(name: str) -> str:
    # TFDS splits at line ends (of any system), strips lines and drops empty ones.
    survives = name and name == name.strip() and not {"\n", "\r"} & set(name)
    return name if survives and name[0] != '"' else json.dumps(name, ensure_ascii=False)


def _parse_label(line: str) -> str:
    if line[0] == '"':
        try:
            return str(json.loads(line))
        except json.JSONDecodeError:
            pass  # written by another program: the quote belongs to the name
    return line
