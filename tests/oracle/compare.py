"""Compares two recordings, and lists every difference by its kind.

    python tests/oracle/compare.py OLD.json NEW.json [--only csv/012] [--lines 40]

Cases that only one of them has, or whose inputs or commands differ, are counted and not
compared. The exit status is 1 if anything differs. words.txt has words that were replaced
on purpose: they count as equal in messages, not in what is published.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record import SKIPPED, TEXT, masked

KINDS = {  # the first pattern in a file's name says what kind of difference it is
    r"tfrecord|array_record|\.idx$": "shards",
    r"rejects": "rejects",
    r"labels": "labels files",
    r"features\.json|schema\.pbtxt|\.yaml$": "schema",
    r"manifest\.json": "manifest",
    r"dataset_info\.json": "dataset_info.json",
    r"run\.json|inputs\.jsonl": "run.json and inputs",
}
# Lines that depend on which worker was first, on how long it took, on inner files.
PASSING = re.compile(
    r"(?m)^(rejected: .* \(all so far: .*|(scan|read|plan|write|publish): .*"
    r"|\.recordmill/<run>/.*)\n"
)
WIDTH = 240  # of a line
SHOWN = 8  # differences of a kind whose text is shown


def kind_of(name: str) -> str:
    return next(
        (k for pattern, k in KINDS.items() if re.search(pattern, name)), "other files"
    )


def load_words() -> list[tuple[re.Pattern[str], str]]:
    lines = (Path(__file__).parent / "words.txt").read_text().splitlines()
    pairs = [line.split(" => ") for line in lines if " => " in line]
    return [(re.compile(old), new) for old, new in pairs]


def shown(command: dict[str, Any]) -> str:
    return (
        f"recordmill {shlex.join(command['args'])}" if "args" in command else "python"
    )


def short_diff(old: str, new: str) -> list[str]:
    """Returns the lines that differ; of long ones the part around the difference."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    lines = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    at = 0
    if len(lines) == 2 and max(map(len, lines)) > WIDTH:
        pairs = enumerate(zip(lines[0][1:], lines[1][1:], strict=False))
        at = max(0, next((n for n, (a, b) in pairs if a != b), 0) - 60)
    return [f"{line[0]}{'...' * (at > 0)}{line[1:][at : at + WIDTH]}" for line in lines]


def published(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the files of a result, masked as they are masked now."""
    files = {}
    for name, described in result["files"].items():
        text = masked(described.get("text", ""))
        whole = text and len(described["text"]) < TEXT
        more = {"text": text, "sha256": ""} if whole else {}
        if not name.rpartition("/")[2].startswith((SKIPPED, "map.py")):
            files[masked(name)] = described | more
    return files


def differences(
    old: dict[str, Any], new: dict[str, Any], words: list[tuple[re.Pattern[str], str]]
) -> Iterator[tuple[str, str, list[str]]]:
    """Yields kind, headline and lines of each difference between two results of a case."""

    def reworded(text: str) -> str:
        text = PASSING.sub("", masked(text))
        for pattern, by in words:
            text = pattern.sub(by, text)
        return re.sub(r"\s+\n|\n\s+", "\n", text) if words else text

    commands = [each for each in old["commands"] if "do" not in each]
    if len(old["runs"]) != len(new["runs"]):
        yield "lost cases", "one of them has no result", []
    for command, was, now in zip(commands, old["runs"], new["runs"], strict=False):
        if was["status"] != now["status"]:
            lines = [
                shown(command),
                *short_diff(was.get("err", ""), now.get("err", "")),
            ]
            yield (
                "exit status",
                f"exit status {was['status']} -> {now['status']}",
                lines,
            )
            continue
        for stream, name in (("out", "stdout"), ("err", "stderr")):
            before, after = was.get(stream, ""), now.get(stream, "")
            if reworded(before) != reworded(after):
                plan = stream == "out" and "--plan" in command.get("args", ())
                lines = [shown(command), *short_diff(before, after)]
                yield "plans" if plan else name, name, lines
    before, after = published(old), published(new)
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            headline = f"{name} {'is new' if was is None else 'is missing'}"
            yield f"{kind_of(name)}: new or missing", headline, []
        elif was != now:
            sizes = [f"{was.get('bytes', '?')} bytes -> {now.get('bytes', '?')} bytes"]
            lines = short_diff(was.get("text", ""), now.get("text", "")) or sizes
            yield kind_of(name), name, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--only", action="append", default=[], help="cases that begin so"
    )
    parser.add_argument("--lines", type=int, default=12, help="of each difference")
    parser.add_argument("--all", action="store_true", help="show the text of all")
    options = parser.parse_args()
    old, new = (json.loads(path.read_text()) for path in (options.old, options.new))
    words = load_words()
    names = [name for name in old if name in new]
    if options.only:
        names = [name for name in names if name.startswith(tuple(options.only))]
    others = [name for name in names if old[name]["digest"] != new[name]["digest"]]
    found: dict[str, list[tuple[str, str, list[str]]]] = defaultdict(list)
    for name in names:
        if name not in others:
            for kind, headline, lines in differences(old[name], new[name], words):
                found[kind].append((name, headline, lines))
    for kind, entries in sorted(found.items()):
        print(f"== {kind}: {len(entries)}")
        for number, (name, headline, lines) in enumerate(entries):
            print(f"{name}  {headline}")
            if number < SHOWN or options.all:
                for line in lines[: options.lines]:
                    print(f"    {line}")
    differ = {entry[0] for entries in found.values() for entry in entries}
    print(f"{len(names)} cases compared, {len(differ)} differ")
    if others:
        print(f"other inputs or commands, not compared: {', '.join(others)}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
