"""Renders the page, and writes it to a file that is not somebody else's."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from recordmill.beam_jobs.report_page.page_parts import Page
from recordmill.schemas.errors import UsageError
from recordmill.transforms.storage.atomic_files import write_atomic

# By it a page is known to be one of ours, so that the next one may replace it.
GENERATOR = '<meta name="generator" content="recordmill report">'
_HEAD_BYTES = 2_000  # of a page, which have it


def render_page(page: Page) -> bytes:
    """Returns the page as HTML that needs no other file."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html")
    return template.render(page=page, generator=GENERATOR).encode()


def check_target(target: Path) -> None:
    """Checks that a page may be written there, before hours of work are lost.

    Raises:
      UsageError: there is a file that is not a page of this command, or no folder.
    """
    if "://" in str(target) or ":/" in str(target):
        raise UsageError(f"{str(target)!r} is a URL; a page is written to a local file")
    if not target.parent.is_dir():
        raise UsageError(
            f"{target}: there is no folder {str(target.parent)!r}. Make it, or choose "
            "another file with -o"
        )
    if not target.exists():
        return
    if target.is_file():
        with target.open("rb") as file:
            if GENERATOR.encode() in file.read(_HEAD_BYTES):
                return
    raise UsageError(
        f"{target}: is there already, and is not a page that this command wrote. Choose "
        "another file with -o, or remove it"
    )


def write_page(page: Page, target: Path) -> int:
    """Writes the page, whole or not at all; returns its bytes."""
    data = render_page(page)
    check_target(target)
    write_atomic(target, data)
    return len(data)
