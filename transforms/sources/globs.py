"""Finds the files that a glob matches, in local folders and in stores.

    *  ?  [a-z]  [!a-z]    characters within one name
    {a,b}                  a or b
    **                     zero or more folders

If a folder matches, all files below it match.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Protocol

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import format_count
from recordmill.transforms.storage.left_out import is_skipped

MAX_ALTERNATIVES = 1000  # maximum number of globs to which braces may expand
_MAX_LISTED_NAMES = 5
_WILDCARD = re.compile(r"[*?\[]|\{[^{}]*,[^{}]*\}")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ANY_FOLDERS = "**"


class FolderTree(Protocol):
    """A tree of folders that can be searched."""

    def list_folder(self, folder: str) -> Iterable[tuple[str, bool]]:
        """Returns pairs (name, is folder) for the contents of a folder."""

    def files_below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        """Yields pairs (file, folder) for the files below these folders.

        With `hidden`, files that listings usually skip are included.
        """


def is_glob(path: str) -> bool:
    """Returns True if a path may be a glob.

    >>> [is_glob(path) for path in ("a/*.csv", "a/{b,c}", "a/b{1}.csv")]
    [True, True, False]
    """
    return _WILDCARD.search(path) is not None


def literal_root(pattern: str) -> str:
    """Returns the folder in a glob before the first wildcard.

    >>> literal_root("data/{train,val}/*.jpg"), literal_root("*.csv")
    ('data', '')
    """
    first_wildcard = _WILDCARD.search(pattern)
    literal = pattern[: first_wildcard.start()] if first_wildcard else pattern
    return literal.rpartition("/")[0]


def expand_braces(pattern: str) -> list[str]:
    """Returns the globs without braces to which a glob expands, in its order.

    >>> expand_braces("{a,b{1,2}}.csv")
    ['a.csv', 'b1.csv', 'b2.csv']
    """
    expanded_globs: dict[str, None] = {}
    pending_globs = [pattern]
    while pending_globs:
        glob = pending_globs.pop()
        braces = _BRACES.search(glob)
        if braces is None:
            expanded_globs[glob] = None
            continue
        prefix, suffix = glob[: braces.start()], glob[braces.end() :]
        options = braces[1].split(",")
        pending_globs += [f"{prefix}{option}{suffix}" for option in reversed(options)]
        if len(pending_globs) + len(expanded_globs) > MAX_ALTERNATIVES:
            raise InputError(
                f"{pattern}: its braces expand to more than {MAX_ALTERNATIVES:,} "
                "globs; use * instead"
            )
    return list(expanded_globs)


def find_matches(tree: FolderTree, root: str, pattern: str) -> dict[str, str]:
    """Returns the files that a glob matches, each with the matching folder, or "".

    The glob is a path of the tree and begins with `root`. The folder is "" for a file
    that itself matches.
    """
    files: dict[str, str] = {}
    hidden = is_skipped(pattern.removeprefix(root))

    @cache
    def below(folders: tuple[str, ...]) -> list[tuple[str, str]]:
        return list(tree.files_below(folders, hidden=hidden))

    for glob in expand_braces(pattern):
        parts = glob.removeprefix(root).strip("/").split("/")
        cut = parts.index(_ANY_FOLDERS) if _ANY_FOLDERS in parts else len(parts)
        matched_paths = (
            [*_match_parts(tree, root, parts[:cut])] if cut else [(root, True)]
        )
        folders = tuple(path for path, is_folder in matched_paths if is_folder)
        if cut < len(parts):
            matches = _match_files(below(folders), parts[cut:])
        else:
            direct = [(path, "") for path, is_folder in matched_paths if not is_folder]
            matches = iter([*direct, *below(folders)])
        for file, folder in matches:
            recorded_folder = files.setdefault(file, folder)
            # A matching folder takes precedence over matching paths inside it.
            if folder and (not recorded_folder or len(folder) < len(recorded_folder)):
                files[file] = folder
    return files


def matches_path(path: str, pattern: str) -> bool:
    """Returns True if a glob matches a path; both are relative to the same folder.

    >>> matches_path("a/b/c.csv", "**/*.csv"), matches_path("a/b.csv", "*.csv")
    (True, False)
    """
    names = path.split("/")
    return any(
        _matches_parts(names, glob.split("/")) for glob in expand_braces(pattern)
    )


def select_paths(paths: Sequence[str], pattern: str) -> set[str]:
    """Returns the paths that a glob matches, or whose folder it matches.

    Unless it has a "/" before its end, the glob matches names at any depth.

    >>> sorted(select_paths(["a/x.csv", "a/b/x.txt", "c/b"], "b"))
    ['a/b/x.txt', 'c/b']
    >>> select_paths(["a/x.csv", "a/b/x.csv"], "a/*.csv")
    {'a/x.csv'}
    """
    matched_paths = set[str]()
    for glob in expand_braces(pattern):
        parts = glob.strip("/").split("/")
        if "/" not in glob.rstrip("/"):
            parts = [_ANY_FOLDERS, *parts]
        files = ((path, "") for path in paths)
        matched_paths |= {path for path, _ in _match_files(files, parts)}
    return matched_paths


def format_no_match(name: str, folder: str, names: Sequence[tuple[str, bool]]) -> str:
    """Returns the message for an input that does not exist.

    Args:
      name: the input as the user wrote it.
      folder: the deepest folder of it that exists, or "".
      names: pairs (name, is folder) for the contents of that folder.
    """
    start = f"{name}: no such file or folder, and no file matches"
    if not folder:
        return start
    visible_names = [
        f"{child_name}/" if is_folder else child_name
        for child_name, is_folder in sorted(names)
        if child_name[:1] != "."
    ]
    if not visible_names:
        return f"{start}; {folder} is empty"
    listed_names, num_unlisted = (
        ", ".join(visible_names[:_MAX_LISTED_NAMES]),
        len(visible_names) - _MAX_LISTED_NAMES,
    )
    more_text = (
        f" and {format_count(num_unlisted, 'other name')}" if num_unlisted > 0 else ""
    )
    return f"{start}; {folder} holds {listed_names}{more_text}"


def _match_parts(
    tree: FolderTree, folder: str, parts: Sequence[str]
) -> Iterator[tuple[str, bool]]:
    """Yields pairs (path, is folder) for the paths below a folder that match `parts`."""
    first_part, remaining_parts = parts[0], parts[1:]
    if remaining_parts and not is_glob(first_part):
        yield from _match_parts(tree, _join(folder, first_part), remaining_parts)
        return
    regex = _name_regex(first_part)
    takes_hidden = is_skipped(first_part)
    for name, is_folder in tree.list_folder(folder):
        if not regex.fullmatch(name) or (is_skipped(name) and not takes_hidden):
            continue
        if not remaining_parts:
            yield _join(folder, name), is_folder
        elif is_folder:
            yield from _match_parts(tree, _join(folder, name), remaining_parts)


def _match_files(
    below: Iterable[tuple[str, str]], parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yields the files that match `parts` of a glob, each with the matching folder.

    `below` has pairs (file, folder from which `parts` are matched). The yielded folder
    is "" if the file itself matches.
    """
    takes_all = all(part == _ANY_FOLDERS for part in parts)

    @cache  # many files have the same parent folders
    def first_match(path: str) -> str:
        """Returns the outermost matching folder on a path, or ""."""
        outer_match = first_match(path.rpartition("/")[0]) if path else ""
        return outer_match or (
            path if path and _matches_parts(path.split("/"), parts) else ""
        )

    for file, folder in below:
        name = file.removeprefix(folder).lstrip("/")
        if takes_all:
            yield file, folder
        elif matched_folder := first_match(name.rpartition("/")[0]):
            yield file, _join(folder, matched_folder)
        elif _matches_parts(name.split("/"), parts):
            yield file, ""


def _matches_parts(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Returns True if a glob matches a path; both are split at each "/"."""
    if not parts:
        return not names
    # `matched` has the possible numbers of names that the parts so far have consumed.
    # The time therefore grows only with len(names) * len(parts):
    #     names a/b/c, parts **/b/*: {0}, {0, 1, 2, 3}, {2}, {3}
    *leading_parts, last_part = parts
    matched = {0}
    for part in leading_parts:
        matched = _advance_counts(names, matched, part)
    if last_part == _ANY_FOLDERS:  # at least the name of the file must remain
        return any(number < len(names) for number in matched)
    return len(names) in _advance_counts(names, matched, last_part)


def _advance_counts(names: Sequence[str], matched: set[int], part: str) -> set[int]:
    """Returns the possible numbers of consumed names after one more part."""
    if part == _ANY_FOLDERS:
        return {*range(min(matched, default=len(names) + 1), len(names) + 1)}
    regex = _name_regex(part)
    return {
        number + 1
        for number in matched
        if number < len(names) and regex.fullmatch(names[number])
    }


@lru_cache(maxsize=64)
def _name_regex(pattern: str) -> re.Pattern[str]:
    # Shells also accept [^a] for [!a].
    return re.compile(fnmatch.translate(pattern.replace("[^", "[!")))


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder else name
