"""Hostile values for fields of text files that others wrote, and files that have one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from mutations import places

_MARKER = "@hostile@"
_DIGITS = "9" * 5000
_BOMB = "[&a0 [x, x], " + ", ".join(
    f"&a{level + 1} [{', '.join([f'*a{level}'] * 9)}]" for level in range(9)
)
_CHAIN = ", ".join(f"&c{level + 1} [*c{level}]" for level in range(2000))

# Values that JSON has no form for, or that json.dumps cannot write.
_JSON_VALUES = (
    *("null", "true", "[]", "{}", "0", "-1", "1e999", "NaN", _DIGITS, "[[[]]]"),
    *('{"a": 1, "a": 2}', '"\\ud800"', "0.1e5000", "[null, null]"),
)
# These take a tenth of a second each, so they are chosen seldom.
_DEEP_VALUES = (
    *("[" * 2000 + "]" * 2000, "[" * 100_000, '{"a": ' * 2000 + "1" + "}" * 2000),
)
_YAML_VALUES = (
    *("2024-99-99", "!!int abc", "!!timestamp 2024-99-99", "!!float x", "!!bool maybe"),
    *("!!binary '='", "!!python/object/apply:os.mkdir ['written-by-yaml']", "!odd x"),
    *("&a [*a]", "*missing", '"\\U00110000"'),
    *('"\\UFFFFFFFF"', "0x" + "f" * 5000, "{? [a] : b}", "<<", "!!set {a, b}", "007"),
    *("1_000", "12:30:45", "~", "|\n x", "'", "[", "%YAML 9.9", "@", "`"),
)
_DEEP_YAML = ("- " * 2000, f"{_BOMB}]", f"[&c0 [x], {_CHAIN}]")
_DEEP_SHARE = 0.04


@dataclass(frozen=True)
class HostileStrings:
    """Strings that lead elsewhere, if a program takes them for paths, and odd ones.

    Attributes:
      folder: a folder that nothing may be read from or written to.
      url: an address of a server that notes who connects.
    """

    folder: str
    url: str

    def strings(self) -> tuple[str, ...]:
        """Returns the strings."""
        return (
            *("../../evil", "../sentinel/secret.txt", f"{self.folder}/secret.txt"),
            *(self.folder, f"{self.folder}/pipe", f"file://{self.folder}/secret.txt"),
            *(
                f"{self.url}/a",
                f"{self.url}/a.csv",
                "s3://bucket/a.csv",
                "~/evil",
                "..",
            ),
            *("\x1b[31mred\x1b[0m\x07", "a\nb", "a\r\nb", "\u202egnp.exe", "x" * 300),
            *("\ud800", "a\0b", "", " ", "a/b", "**/" * 3000, "{a,b}" * 30, "[" * 99),
            *(
                "/" * 5000,
                "x" * 100_000,
                "-",
                "--help",
                "$(id)",
                "{{ date }}",
                "9" * 5000,
            ),
        )

    def value(self, random: Random) -> str:
        """Returns a value as JSON text."""
        if random.random() < _DEEP_SHARE:
            return random.choice(_DEEP_VALUES)
        if random.random() < 0.5:
            return random.choice(_JSON_VALUES)
        return json.dumps(random.choice(self.strings()))

    def json(self, document: Any, random: Random) -> bytes:
        """Returns a document as JSON in which one value is hostile, or a key is there twice."""
        return _with_one(document, self.value(random), random)

    def yaml(self, document: Any, random: Random) -> bytes:
        """Returns a document as YAML in which one value is hostile, or a key is there twice."""
        text = self.value(random)
        if random.random() < 0.5:
            is_deep = random.random() < _DEEP_SHARE
            text = random.choice(_DEEP_YAML if is_deep else _YAML_VALUES)
        return _with_one(document, text, random)

    def lines(self, text: str, random: Random) -> bytes:
        """Returns a text in which a part of a line is hostile, or a line is there twice."""
        lines = text.splitlines(keepends=True)
        at = random.randrange(len(lines))
        parts = lines[at].rstrip("\n").split(",")
        if random.random() < 0.2:
            lines.insert(random.randrange(len(lines)), lines[at])
        else:
            parts[random.randrange(len(parts))] = random.choice(self.strings())
            lines[at] = ",".join(parts) + "\n"
        return "".join(lines).encode(errors="surrogatepass")

    def xml(self, text: str, random: Random) -> bytes:
        """Returns XML in which the text of an element, or the head, is hostile."""
        hostile = random.choice(
            [
                *self.strings(),
                *(
                    "<x>" * 2000,
                    "&lt;",
                    "&#0;",
                    "&#xD800;",
                    "&b;",
                    "<![CDATA[",
                    "1e999",
                ),
            ]
        )
        data = text.encode()
        head = random.choice(_XML_HEADS) if random.random() < 0.3 else b""
        texts = list(_element_texts(data))
        start, stop = random.choice(texts)
        if not head:
            new = hostile.encode(errors="surrogatepass")
            return data[:start] + new + data[stop:]
        return head.replace(b"URL", self.url.encode()) + data


_XML_HEADS = (
    b'<?xml version="1.0" encoding="none-such"?>',
    b'<?xml version="1.0" encoding="utf-16"?>',
    b'<?xml version="1.0" encoding="idna"?>',
    b'<?xml version="9.9"?>',
    b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]>',
    b'<!DOCTYPE a SYSTEM "URL/a.dtd">',
    b'<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY c "&b;&b;&b;&b;">]>',
)


def _element_texts(data: bytes) -> Iterator[tuple[int, int]]:
    start = data.find(b">") + 1
    while 0 < start < len(data):
        stop = data.find(b"<", start)
        if stop < 0:
            return
        yield start, stop
        start = data.find(b">", stop) + 1


def _with_one(document: Any, value: str, random: Random) -> bytes:
    document = json.loads(json.dumps(document))
    holder, key = random.choice([*places(document)])
    action = random.randrange(6)
    if action == 0 and isinstance(holder, list):
        holder.append(holder[key])  # a name twice
        return json.dumps(document).encode()
    if action == 1 and isinstance(holder, dict):
        holder[_MARKER] = holder.pop(key)  # an odd key
        text = json.dumps(document)
        is_key = value.startswith('"')
        return text.replace(json.dumps(_MARKER), value if is_key else '"x"').encode()
    if action == 2 and isinstance(holder, dict):
        pair = f"{json.dumps(key)}: {json.dumps(holder.pop(key))}"
        holder[_MARKER] = 0
        both = f"{pair}, {json.dumps(key)}: {value}"
        return json.dumps(document).replace(f'"{_MARKER}": 0', both).encode()
    holder[key] = _MARKER
    return json.dumps(document).replace(json.dumps(_MARKER), value).encode()
