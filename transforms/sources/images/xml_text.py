"""Parses XML that other programs wrote, without document types and entities."""

from __future__ import annotations

from typing import Any, NoReturn
from xml.etree import ElementTree

from recordmill.schemas.input_text import describe_failure

_MAX_LEVELS = 100  # of nested elements; a deep tree crashes the process


class _Builder(ElementTree.TreeBuilder):
    """A tree builder that raises ValueError for deep trees and document types."""

    depth = 0

    def start(self, tag: str, attrs: dict[Any, Any]) -> Any:
        self.depth += 1
        if self.depth > _MAX_LEVELS:
            raise ValueError(f"has more than {_MAX_LEVELS} elements in each other")
        return super().start(tag, attrs)

    def end(self, tag: str) -> Any:
        self.depth -= 1
        return super().end(tag)

    def doctype(self, *_: Any) -> NoReturn:
        raise ValueError("has a document type, which could define entities")


def parse_xml(text: bytes) -> ElementTree.Element:
    """Returns the root element of an XML document; raises ValueError for other text."""
    try:
        return ElementTree.fromstring(text, ElementTree.XMLParser(target=_Builder()))
    except Exception as error:  # from expat or a codec, such as an unknown encoding
        raise ValueError(describe_failure(error)) from error
