"""Damages files at random, a byte or a value at a time, the same way for each number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any
from xml.etree import ElementTree

from example_counts import FUZZ
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from recordmill.schemas.errors import InputError

# What a value of a JSON file becomes: other types, and numbers at every edge.
ODD_VALUES: tuple[Any, ...] = (
    None, True, [], {}, "", "x", "..", "../x", "/x", "a\\b", "a\0b", "\ud800", -1, 0,
    1 << 31, 1 << 63, 1 << 64, -(1 << 63) - 1, 10**400, 0.5, 1e300, float("nan"),
    float("inf"), -float("inf"), "1e999", "x" * 300, "9" * 5000, [[]], [None],
    {"a": None}, {"": 1}, ["x"] * 3,
)  # fmt: skip
ODD_WORDS = (
    *("", "x", "-1", "0", "1e999", "-inf", "nan", "0x1", "1_0", "1e-320", "0.5", "3.0"),
    *("9" * 400, "\u0661", "\xa01", "1 2", "..", "&#0;", "&amp;"),
)
# An XML file that defines entities: some are huge, or name a file.
_TYPES = (
    b'<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY c "&b;&b;&b;&b;">]>',
    b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]>',
    b'<!DOCTYPE a SYSTEM "file:///etc/hostname">',
)
_DEEP = 5000
_ODD_TEXTS = (
    b"[" * 5000,
    b"",
    b"\0",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\",
    b"\n",
    b":",
    b"- ",
)


def try_all(
    attempt: Callable[[int], int],
    *told: str,
    share: float = 0.25,
    refused: tuple[type[Exception], ...] = (InputError,),
) -> list[str]:
    """Makes as many attempts as a fuzzer is to; returns the messages of inputs refused.

    Args:
      attempt: converts the input of a number; returns how much was in it, or whether.
      told: a message must have one of these, if there are any.
      share: how much the attempts must have converted, by their number.
      refused: the errors that an attempt may raise.
    """
    converted, errors = 0, list[str]()
    for number in range(FUZZ):
        try:
            converted += attempt(number)
        except refused as error:
            errors.append(str(error))
        except Exception as error:
            error.add_note(f"number {number}")
            raise
    assert converted > FUZZ * share
    assert all(not told or any(one in error for one in told) for error in errors)
    return errors


def damaged(data: bytes, number: int) -> bytes:
    """Returns a file with a few bytes changed, cut out, doubled or put in."""
    random = Random(number)
    result = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(result) + 1)
        match random.randrange(5):
            case 0:
                result[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                del result[at : at + random.choice((1, 2, 8, 200))]
            case 2:
                result[at:at] = result[at : at + random.choice((1, 3, 20))]
            case 3:
                result[at:at] = random.choice(_ODD_TEXTS)
            case _:
                del result[at:]
    return bytes(result)


def with_odd_value(data: bytes, number: int) -> bytes:
    """Returns a JSON file in which a value or a key is another one, or is missing."""
    random = Random(number)
    document = json.loads(data)
    found = list(places(document))
    if not found:
        return data
    holder, key = found[random.randrange(len(found))]
    action = random.randrange(8)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder["x" if random.random() < 0.5 else "..\\"] = holder.pop(key)
    else:
        holder[key] = random.choice(ODD_VALUES)
    return json.dumps(document).encode()


def with_odd_keys(data: bytes, number: int) -> bytes:
    """Returns a JSON file as by `with_odd_value`, or with a key twice, or a deep value."""
    random = Random(number)
    action = random.randrange(16)
    if action > 3:
        return with_odd_value(data, number)
    deep = b"[" * _DEEP + b"]" * _DEEP
    value = deep if action == 0 else json.dumps(random.choice(ODD_VALUES)).encode()
    pairs = list(re.finditer(rb'"\w+":', data))
    pair = random.choice(pairs)
    at = random.choice((pair.start(), data.find(b"}", pair.end())))
    new = (pair[0] + value + b", ", b", " + pair[0] + value)
    return data[:at] + new[at != pair.start()] + data[at:]


def with_odd_element(data: bytes, number: int) -> bytes:
    """Returns an XML file with an element more, less, moved, renamed, or of an odd text."""
    random = Random(number)
    if random.randrange(8) == 0:
        at = data.find(b"<annotation")
        told = random.choice(_TYPES)
        return data[:at] + told + data[at:].replace(b"dog", b"&b;", 1)
    root = ElementTree.fromstring(data)
    parents = [each for each in root.iter() if len(each)]
    parent = random.choice(parents)
    at = random.randrange(len(parent))
    child = parent[at]
    match random.randrange(6):
        case 0:
            parent.remove(child)
        case 1:
            parent.insert(random.randrange(len(parent) + 1), child)
        case 2:
            random.choice(parents[: parents.index(parent) + 1]).append(child)
        case 3:
            child.tag = random.choice(["x", "object", "name", "xmin"])
        case 4:
            wrapped = b"<x>" * _DEEP + b"</x>" * _DEEP
            tag = f"<{child.tag}>".encode()
            return data.replace(tag, wrapped + tag, 1)
        case _:
            child.text = random.choice(ODD_WORDS)
    return ElementTree.tostring(root)


def with_odd_word(data: bytes, number: int) -> bytes:
    """Returns a text with a word more, less or in place of another."""
    random = Random(number)
    words = re.split(rb"(\s+)", data)
    at = random.randrange(len(words))
    words[at : at + random.randrange(3)] = [random.choice(ODD_WORDS).encode()]
    return b"".join(words)


def mutated(value: Any) -> SearchStrategy[bytes]:
    """The JSON of a value with a few odd values, sometimes damaged as text, too."""

    def mutate(number: int) -> bytes:
        data = json.dumps(value).encode()
        for change in range(number % 3 + 1):
            data = with_odd_value(data, number + change)
        return damaged(data, number) if number % 8 == 0 else data

    return st.builds(mutate, st.integers(0, 1 << 32))


def places(value: Any) -> Any:
    """Yields (holder, key) of every value in a JSON document."""
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    else:
        return
    for key, inner in pairs:
        yield value, key
        yield from places(inner)
