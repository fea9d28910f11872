"""Names, docstrings and pages keep to the rules of CONTRIBUTING.md on language.

The limits are shares of whole texts, so a single word that reads well where it is may
stay. `python tests/unit/layout/test_language.py` prints the shares and each place.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("schemas", "transforms", "beam_jobs", "src")

# Words that say nothing about a value: a reader cannot search for a concept by them.
WITHOUT_NOUN = frozenset(
    """after all asked before each earlier found given gone held here it kept known later
    left looked made meant named noted now one others own put rest said seen shown some
    such taken tell tells that then there these those told wanted what where which whose
    """.split()  # noqa: SIM905
) - {"all", "left"}
# Nouns that fit every value.
EMPTY_NOUNS = frozenset(
    "data entry info item items object result results value values".split()  # noqa: SIM905
)
MAX_WITHOUT_NOUN, MAX_EMPTY_NOUNS, MAX_MARKED_SENTENCES = 0.003, 0.02, 0.02

# A docstring names what a function returns or does; these begin with a pronoun instead.
PRONOUN_SUBJECT = re.compile(
    r"^(what|whether|those|these|that which|the ones?)\b"
    r"|^(returns|yields|finds|makes|reads|writes|takes|keeps|adds|gives|tells|says|looks) "
    r"(those|these|that|them|it|what|which|whether it|how|where|of|some of"
    r"|everything|all that|the ones?|the others?)\b"
    r"|\b(of|with|in|for|from|to|by) (those|these|them|it) (that|which|of)\b",
    re.IGNORECASE,
)
# Phrases that an English technical writer does not use in these senses.
MARKED_SENTENCE = re.compile(
    r"^Of |\b(that|those) of\b|\bbeside\b|\b(lies?|stands?|gives?|says?|said)\b"
    r"|\b(by|of|to|from|in) which\b|\bis none\b|\bnor (is|are|does)\b"
    r"|\bat work\b|\b(is|are) there\b|\bis gone\b|, too\b"
    r"|\balso (none|of|by|with|in|where)\b|\breadings?\b|\bhas (it|them|its|that)\b"
)
REFERENCE = re.compile(
    r"\b[Ss]ee (?:`([\w.]+)`|([\w./-]+\.(?:py|md|c|h|json)\b)|([A-Z]\w*(?:\.\w+)*\b))"
)


@cache
def product_files() -> tuple[Path, ...]:
    return tuple(
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.name.endswith("_pb2.py")
    )


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                yield token.start[0], token.string.strip("_")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yields blocks of comments, each as one text."""
    block, start, last = "", 0, -1
    text = io.BytesIO(path.read_bytes())
    for token in tokenize.tokenize(text.readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield start, block
            block = ""
        start, last = start if block else line, line
        block += " " + token.string.lstrip("# ")
    if block:
        yield start, block


def sentences(page: Path) -> list[str]:
    """Returns the sentences and the cells of tables of a page, without code blocks."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
    lines = [line for line in text.split("\n") if not line.startswith("    ")]
    cells = [
        cell.strip()
        for line in lines
        if line.startswith("|")
        for cell in line.strip("|").split("|")
    ]
    prose = "\n".join(line for line in lines if not line.startswith(("|", "#")))
    prose = re.sub(r"\n(?=[a-z`(\[0-9A-Z*])", " ", prose)
    parts = re.split(r"(?<=[.!?:])\s+|\n\n|\n- ", prose)
    return [part for part in (*parts, *cells) if len(part.split()) > 3]


def pages() -> list[Path]:
    top = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    below = [*(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return [*(ROOT / name for name in top), *below, ROOT / "examples/README.md"]


@cache
def defined_names() -> frozenset[str]:
    """Returns all names that the product defines: modules, functions, fields, ..."""
    names = {path.stem for path in product_files()}
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    names.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    names.add(name)
    return frozenset(names)


def resolves(path: Path, reference: str) -> bool:
    if re.search(r"\.(py|md|c|h|json)$", reference):
        folders = (ROOT, *path.parents)
        rooms = [*ROOT.glob("transforms/*/"), ROOT / "transforms", ROOT / "tests"]
        return any((folder / reference).exists() for folder in (*folders, *rooms))
    return reference.rpartition(".")[2] in defined_names()


def measure_names(words: frozenset[str]) -> tuple[float, Counter[str]]:
    total, places = 0, Counter[str]()
    for path in product_files():
        for _, name in identifiers(path):
            total += 1
            if name in words:
                places[f"{path.relative_to(ROOT)}: {name}"] += 1
    return places.total() / total, places


def marked_sentences() -> tuple[float, list[str]]:
    total, marked = 0, []
    for page in pages():
        texts = sentences(page)
        total += len(texts)
        marked += [
            f"{page.relative_to(ROOT)}: {text}"
            for text in texts
            if MARKED_SENTENCE.search(text)
        ]
    return len(marked) / total, marked


def pronoun_subjects() -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {first}"
        for path in product_files()
        for line, text in docstrings(path)
        if PRONOUN_SUBJECT.search(first := " ".join(text.split("\n\n")[0].split()))
    ]


def test_identifiers_are_nouns() -> None:
    share, places = measure_names(WITHOUT_NOUN)
    assert share <= MAX_WITHOUT_NOUN, places.most_common(20)


def test_nouns_are_not_empty() -> None:
    share, places = measure_names(EMPTY_NOUNS)
    assert share <= MAX_EMPTY_NOUNS, places.most_common(20)


def test_docstrings_name_their_subject() -> None:
    assert pronoun_subjects() == []


def test_pages_are_plain_english() -> None:
    share, marked = marked_sentences()
    assert share <= MAX_MARKED_SENTENCES, marked[:20]


@pytest.mark.parametrize("folder", FOLDERS)
def test_references_resolve(folder: str) -> None:
    unknown = [
        f"{path.relative_to(ROOT)}:{line}: see {reference}"
        for path in product_files()
        if path.relative_to(ROOT).parts[0] == folder
        for line, text in (*docstrings(path), *comments(path))
        for groups in REFERENCE.findall(" ".join(text.split()))
        if not resolves(path, reference := next(filter(None, groups)))
    ]
    assert unknown == []


if __name__ == "__main__":
    for title, (share, places) in {
        "identifiers without a noun": measure_names(WITHOUT_NOUN),
        "empty nouns": measure_names(EMPTY_NOUNS),
    }.items():
        print(f"{title}: {share:.2%}", *places.most_common(20), sep="\n  ")
    share, marked = marked_sentences()
    print(f"marked sentences: {share:.2%}", *marked, sep="\n  ")
    print("docstrings without a subject:", *pronoun_subjects(), sep="\n  ")
