"""Docstrings of functions begin with a verb in the third person: "Returns", "Writes".

A word counts as a verb if it stands in VERBS; who needs another one adds it there. The
share of docstrings that do is printed by `python tests/unit/layout/test_docstrings.py`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
VERBS = frozenset(
    """
    Accepts Acquires Adds Aligns Allocates Allows Answers Appends Applies Asks Assigns
    Attaches Begins Binds Bounds Breaks Brings Builds Caches Calls Cancels Casts Changes
    Checks Chooses Cleans Clears Closes Collects Combines Compares Compresses Computes
    Concatenates Confirms Connects Contains Continues Converts Copies Counts Creates Cuts
    Decides Declares Decodes Decompresses Defines Deletes Derives Describes Detects
    Determines Discards Displays Divides Draws Drops Emits Encodes Ends Enters Enumerates
    Escapes Estimates Evaluates Executes Exits Expands Explains Exports Extends Extracts
    Fetches Fills Filters Finds Finishes Flags Flattens Flushes Follows Formats Forwards
    Frames Gathers Generates Gets Gives Groups Guesses Handles Hashes Holds Identifies
    Ignores Imports Indexes Infers Initializes Inserts Inspects Installs Invokes Issues
    Iterates Joins Keeps Kills Labels Launches Lays Lets Limits Lists Loads Locates Locks
    Logs Looks Lowers Makes Maps Marks Masks Matches Measures Merges Moves Names Nests
    Normalizes Notes Numbers Opens Orders Overwrites Packs Pads Parses Passes Patches
    Picks Plans Points Prefixes Prepares Prints Processes Produces Projects Publishes
    Pulls Puts Quotes Raises Ranks Reads Rebuilds Receives Records Recovers Reduces
    Refers Refuses Registers Rejects Releases Removes Renames Renders Renews Repeats
    Replaces Reports Requires Resets Resolves Restores Resumes Retries Returns Reverses
    Rewrites Rounds Runs Samples Saves Scales Scans Schedules Searches Selects Sends
    Separates Serializes Sets Shifts Shows Shuffles Signals Sizes Skips Slices Sorts
    Spawns Spells Spills Splits Spreads Squeezes Stages Starts Stops Stores Streams
    Strips Submits Sums Summarizes Suppresses Synchronizes Syncs Takes Tells Terminates Tests Times
    Tracks Transforms Translates Transposes Treats Tries Trims Truncates Turns Unlocks
    Unpacks Unwraps Updates Uploads Uses Validates Verifies Views Visits Waits Walks
    Warns Wraps Writes Yields
    """.split()  # noqa: SIM905
)


def functions(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, name and docstring of each function that has one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.lineno, node.name, text


def without_verb(top: Path = ROOT) -> tuple[int, list[str]]:
    """The number of docstrings, and the lines of those that begin otherwise."""
    total, wrong = 0, []
    paths = [top] if top.is_file() else sorted(top.rglob("*.py"))
    for path in paths:
        for line, name, text in functions(path):
            total += 1
            if text.split()[0].rstrip(",.:") not in VERBS:
                first = text.splitlines()[0]
                wrong.append(f"{path}:{line}: {name}: {first}")
    return total, wrong


def test_docstrings_begin_with_a_verb() -> None:
    wrong = []
    for folder in ("schemas", "transforms", "beam_jobs", "src"):
        wrong += without_verb(ROOT / folder)[1]
    assert wrong == []


if __name__ == "__main__":
    names = sys.argv[1:] or ["schemas", "transforms", "beam_jobs"]
    number = failing = 0
    for name in names:
        found, other = without_verb(Path(name))
        number, failing = number + found, failing + len(other)
        print("\n".join(other))
    print(
        f"{number - failing} of {number} begin with a verb: {1 - failing / number:.1%}"
    )
