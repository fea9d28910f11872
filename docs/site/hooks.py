"""Keeps each `--option` on one line: browsers break a line behind its hyphens."""

from __future__ import annotations

import re

_CODE = re.compile(r"<code>[^<]*</code>")
_OPTION = re.compile(r"--[a-z][\w-]*")


def on_page_content(html: str, **_: object) -> str:
    """Marks the options in the code of a page; mkdocs calls it."""
    return _CODE.sub(
        lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html
    )
