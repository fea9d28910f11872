"""Collects the pages of the site: those of the checkout, and the generated reference.

    python docs/site/pages.py FOLDER

Pages keep their places, so that links hold in a checkout and on the site. What a page links
to comes along: files as they are, a folder as a page that shows its files, a notebook also
as a page.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from recordmill.beam_jobs.cli.main import cli
from recordmill.schemas.job_file import create_job_schema
from recordmill.transforms.sources.registry import InstalledFormats

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\(([^)#\s]+)")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "sh"}
_PAGES = {".md", ".ipynb"}
_WIDTH = 78
_API = {
    "Read datasets": ("open_dataset", "Dataset", "read_rows", "read_batches"),
    "PyTorch": ("TorchRows", "mix"),
    "Beam": ("WriteDataset", "ReadDataset"),
}


def linked(page: Path) -> set[Path]:
    """Returns the files and folders of the checkout that a page links to."""
    text = _FENCED.sub("", text_of(page))
    targets = (page.parent / t for t in _LINK.findall(text) if "://" not in t)
    return {Path(os.path.normpath(target)) for target in targets}


def collect(folder: Path) -> None:
    """Copies every page that can be reached from README.md, and what they link to."""
    docs = ROOT / "docs"
    waiting = [ROOT / "README.md", *sorted(docs.rglob("*.md")), *docs.glob("*.ipynb")]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if path.suffix in _PAGES:
            new = linked(path) - seen
            seen |= new
            waiting += sorted(new)
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            copy.mkdir(exist_ok=True)
            (copy / "README.md").write_text(listing(path))
        elif path.suffix in _PAGES:
            copy.with_suffix(".md").write_text(with_titles(path))
        if path.is_file() and path.suffix != ".md":
            shutil.copyfile(path, copy)


def text_of(page: Path) -> str:
    return notebook_page(page) if page.suffix == ".ipynb" else page.read_text()


def notebook_page(notebook: Path) -> str:
    """Returns the cells of a notebook as the text of a page, with a link to the notebook."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            magic, _, rest = text.partition("\n")
            if magic == "%%bash":
                text = f"```sh\n{rest}\n```"
            elif magic.startswith("%%writefile "):
                name = magic.split()[1]
                language = _LANGUAGES[Path(name).suffix]
                text = f'```{language} title="{name}"\n{rest}\n```'
            else:
                text = f"```python\n{text}\n```"
        parts.append(text)
    title, *others = parts
    download = f"This page is a notebook: <a href={notebook.name!r}>download it</a>."
    return "\n\n".join([title, download, *others]) + "\n"


def with_titles(page: Path) -> str:
    """Returns the text of a page in which a link shows the title of its page, not a file.

    A link to a folder leads to that folder's page.
    """

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        place = page.parent / target
        if "://" in target or not place.exists():
            return match[0]
        if place.is_dir():
            return f"[{text}]({target.rstrip('/')}/README.md"
        if text.endswith(tuple(_PAGES)):
            text = text_of(place).partition("\n")[0].lstrip("# ")
        return f"[{text}]({target.replace('.ipynb', '.md')}"

    text = re.sub(r"\[([^\]]*)\]\(([^)#\s]+)", link, text_of(page))
    # Within code of a table, GitHub needs a backslash that Python-Markdown would show.
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), text)


def listing(folder: Path) -> str:
    """Returns a page that shows the files of a folder."""
    parts = [f"# {folder.relative_to(ROOT)}"]
    for path in sorted(folder.rglob("*")):
        if path.suffix in _LANGUAGES:
            name = path.relative_to(folder)
            code = f"```{_LANGUAGES[path.suffix]}\n{path.read_text()}```"
            parts.append(f"## {name}\n\n{code}")
    return "\n\n".join(parts) + "\n"


def helps(command: click.Command, words: str) -> Iterator[tuple[str, str]]:
    """Yields the words of a command and of each one below it, with its help."""
    context = click.Context(command, info_name=words, terminal_width=_WIDTH)
    yield words, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below
            yield from helps(below, f"{words} {name}")


def help_sentences() -> str:
    """Returns the texts of all commands and options, a paragraph each, for `make words`."""
    context = click.Context(cli)
    texts: dict[str, None] = {}
    waiting: list[click.Command] = [cli]
    while waiting:
        command = waiting.pop()
        if isinstance(command, click.Group):
            names = command.list_commands(context)
            waiting += [c for n in names if (c := command.get_command(context, n))]
        given = (getattr(parameter, "help", None) for parameter in command.params)
        texts |= dict.fromkeys(t for t in (command.help, *given) if t)
    return "\n\n".join(inspect.cleandoc(text) for text in texts)


def command_pages() -> Iterator[tuple[str, str]]:
    """Yields the name and text of a page for recordmill and for each of its commands."""
    context = click.Context(cli)
    yield "recordmill", help_page([("recordmill", cli.get_help(context))])
    for name, command in cli.commands.items():
        yield (
            f"recordmill-{name}",
            help_page(list(helps(command, f"recordmill {name}"))),
        )


def help_page(commands: list[tuple[str, str]]) -> str:
    (title, first), *below = commands
    parts = [f"# {title}\n\n```text\n{first}\n```"]
    parts += [f"## {words}\n\n```text\n{text}\n```" for words, text in below]
    return "\n\n".join(parts) + "\n"


def job_file_page() -> str:
    """Returns the page of a job file's keys, by its JSON Schema."""
    schema = create_job_schema(InstalledFormats())
    parts = [
        "# Keys of a job file",
        f"{schema['description']} [Jobs](../docs/jobs.md) shows how to use one. "
        "`recordmill run --job-schema` prints the JSON Schema of this page, for editors.",
        key_table(schema),
    ]
    for name, part in schema["$defs"].items():
        if "properties" in part:
            heading = f"## {part['description'].rstrip('.')} {{#{name.lower()}}}"
            parts += [heading, key_table(part)]
    return "\n\n".join(parts) + "\n"


def key_table(schema: Mapping[str, Any]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, value in schema["properties"].items():
        default = value.get("default")
        default = "" if default is None else f"`{json.dumps(default)}`"
        if name in schema.get("required", ()):
            default = "required"
        cells = (f"`{name}`", type_of(value), default, value.get("description", ""))
        rows.append("| " + " | ".join(escaped(cell) for cell in cells) + " |")
    return "\n".join(rows)


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def type_of(value: Mapping[str, Any]) -> str:
    """Returns the type of a value in words; a template may stand for any of them."""
    if "anyOf" in value:
        plain = (
            k for k in value["anyOf"] if not k.get("pattern", "").startswith(r"\{")
        )
        kinds = [type_of(kind) for kind in plain]
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if value.get("$ref", "#")[0] != "#":  # another file
        return "[schema](../docs/schema.md)"
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name != "JsonValue" else "any"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if "items" in value:
        return f"list of {type_of(value['items'])}"
    if isinstance(kinds := value.get("additionalProperties"), dict):
        return f"mapping to {type_of(kinds)}"
    return str(value.get("type", "any"))


def api_page() -> str:
    """Returns the page of the public names, which mkdocstrings fills by docstrings."""
    parts = ["# Python API", "Each name is imported from `recordmill`."]
    for title, names in _API.items():
        parts.append(f"## {title}")
        parts += [f"::: recordmill.{name}" for name in names]
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    collect(folder)
    reference = folder / "reference"
    (reference / "cli").mkdir(parents=True)
    for name, text in command_pages():
        (reference / f"cli/{name}.md").write_text(text)
    (reference / "job-file.md").write_text(job_file_page())
    (reference / "python.md").write_text(api_page())
    folder.with_name("help.md").write_text(help_sentences())
    shutil.copytree(Path(__file__).parent / "assets", folder / "assets")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
