"""What the page is made of: the values that its template shows, ready as text."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from recordmill.schemas.text import printable

_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure with its name, and what must be known of it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
      columns: their headings. The first column names the row, others hold numbers unless
        their heading begins with "=".
      rows: texts, one for each column.
      shares: of each row, from 0 to 1, drawn as a bar; empty for none.
      note: what is left out.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    shares: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with the figures behind it.

    Attributes:
      caption: what it shows.
      drawing: SVG.
      table: its figures.
      note: what is not drawn, or estimated.
      key: names of its colours, in their order; empty if there is one.
      open: whether the figures are shown from the start.
    """

    caption: str
    drawing: Markup
    table: Table
    note: str = ""
    key: tuple[str, ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """What is known of one feature; a wide one has its parts side by side."""

    name: str
    kind: str
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture: a data: URL, or why there is none."""

    url: str
    alt: str
    width: int = 0
    height: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class SheetRow:
    """The first pictures of a class."""

    name: str
    count: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A contact sheet."""

    feature: str
    rows: tuple[SheetRow, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Snippet:
    """Code that loads the dataset."""

    title: str
    code: str


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page, section by section; an empty one is left out or says so."""

    title: str
    folder: str
    tiles: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    splits: Table
    snippets: tuple[Snippet, ...]
    classes: tuple[Card, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    pictures: tuple[Card, ...] = ()
    values: tuple[Card, ...] = ()
    values_note: str = ""
    missing: Table | None = None
    shards: tuple[Chart, ...] = ()
    balance: Table | None = None
    rejects: Table | None = None
    rejects_note: str = ""
    schema: Table = field(default_factory=lambda: Table((), ()))


def shown(text: str) -> str:
    """Returns a name from the data: without control characters, and not too long."""
    cut = text if len(text) <= _NAME_CHARACTERS else f"{text[: _NAME_CHARACTERS - 1]}…"
    return printable(cut)
