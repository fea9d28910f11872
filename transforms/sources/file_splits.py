"""Finds the split of each file from its name or from the name of one of its folders.

    train-00000-of-00001.parquet, X_test.csv, data.val.jsonl    the word in the name
    train/a.csv, seg_test/b.csv, split=dev/c.csv                the folder

Hugging Face `datasets` uses the same words. No letter may precede or follow a word.
Names count only if they determine the split of every file. For folders of images, which
may also be classes, see `images.find`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self
from urllib.parse import unquote
from zlib import crc32

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile, folder_name
from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN
from recordmill.schemas.text import format_count, format_names

AUTO, NONE = "auto", "none"
TRAIN_NAMES = frozenset({"train", "training"})  # files that a job's splits may divide
SPLIT_NAMES = TRAIN_NAMES | {
    *("val", "valid", "validation", "dev"),
    *("test", "testing", "eval", "evaluation"),
}
_SYNONYMS = (
    ("train", "training"),
    ("validation", "val", "valid", "dev"),
    ("test", "testing", "eval", "evaluation"),
)
_PUBLISHED_NAMES = {"t10k": "test", "data_batch": "train"}  # by MNIST and CIFAR
_WORDS = "|".join((*SPLIT_NAMES, *_PUBLISHED_NAMES))
_WORD = re.compile(rf"(?<![^\W\d_])({_WORDS})(?![^\W\d_])", re.IGNORECASE)
_SHARD = re.compile(r"(\w+)-\d{5,}-of-\d{5,}\b")
_SPLIT_PREFIX = "split="  # prefix of the folder of a Hive partition
# the missing value in the name of such a folder
MISSING_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Characters that a path must not have if a message shows it as the value of an option.
_UNSAFE_CHARACTERS = re.compile(r"[\x00-\x1f\x7f`*?\[{]")


def likely_splits(names: Iterable[str]) -> frozenset[str]:
    """Returns the sibling folders that are splits by their names.

    Folders named split=... take precedence. Otherwise, this is the largest group of
    folders whose names have the same text around different words for splits, or are such
    words. Case is ignored, and so are the digits of that text.

    >>> sorted(likely_splits(["seg_train", "seg_test", "train_station"]))
    ['seg_test', 'seg_train']
    """
    names = {*names}
    if by_key := frozenset(name for name in names if name.startswith(_SPLIT_PREFIX)):
        return by_key
    names_by_affix = defaultdict[tuple[str, str], dict[str, set[str]]](dict)
    for name in names:
        folded = re.sub(r"[0-9]+", "0", name.casefold())
        for word in SPLIT_NAMES:
            prefix, matched_word, suffix = folded.partition(word)
            if matched_word:
                names_by_affix[prefix, suffix].setdefault(word, set()).add(name)
    groups = [
        frozenset().union(*by_word.values())
        for affix, by_word in names_by_affix.items()
        if len(by_word) > 1 or affix == ("", "")
    ]
    return max(
        groups, key=lambda group: (len(group), sorted(group)), default=frozenset()
    )


def split_word(name: str) -> str:
    """Returns the word for a split in a name; "" if it has none or several.

    >>> [split_word(name) for name in ("X_Test2.npy", "t10k-images", "contest", "train-val")]
    ['test', 'test', '', '']
    """
    split_words = {
        _PUBLISHED_NAMES.get(word.lower(), word.lower()) for word in _WORD.findall(name)
    }
    return split_words.pop() if len(split_words) == 1 else ""


def remove_split_word(name: str) -> str:
    """Returns a name without the word for its split, if it has exactly one."""
    return _WORD.sub("", name) if split_word(name) else name


def _parse_shard_split(name: str) -> str:
    """Returns the split in the name of a shard, such as x-00000-of-00002, or ""."""
    shard_match = _SHARD.match(name)
    return shard_match[1] if shard_match else ""


def split_of_folder(name: str) -> str:
    """Returns the split of a folder that is known to name one; "" for a missing value."""
    if name.startswith(_SPLIT_PREFIX):
        split = unquote(name.removeprefix(_SPLIT_PREFIX))
        return "" if split == MISSING_PARTITION else split
    return folder_name(name).replace(" ", "_")


ByName = Literal["", "word", "shard"]
_BY_NAME: Mapping[ByName, Callable[[str], str]] = {
    "": lambda _: "",
    "word": split_word,
    "shard": _parse_shard_split,
}


@dataclass(frozen=True, slots=True)
class FileSplits:
    """A rule by which names define the splits of files: as requested, then as found."""

    requested_level: str = NONE  # auto, none, or the level of a folder below each input
    # True if some files may have no split although others have one: the job's splits
    # divide these files, or a column defines the splits of all rows
    may_mix: bool = False
    by_name: ByName = ""  # how file names define splits
    folder_index: int = 0  # position in a path of the folder that may name a split
    folders: frozenset[str] = frozenset()  # the folder names there that are splits
    names: tuple[str, ...] = ()  # the splits; () if files have none
    split_counts: str = ""  # the number of files of each split, as text

    def split_of(self, file: InputFile, name_split: str | None = None) -> str:
        """Returns the split of a file, or "".

        `name_split` is the split in the name of the file, if the caller knows it.
        """
        *folders, name = file.path.split("/")
        if self.requested_level.isdigit():
            given_depth = file.given_folder.count("/") + 1 if file.given_folder else 0
            # Includes the folders above the input root: level 0 may be the root itself.
            folders_above = file.uri.split("/")[: -len(folders) - 1]
            level_index = (
                len(folders_above) + given_depth + int(self.requested_level) - 1
            )
            return split_of_folder(
                "".join([*folders_above, *folders][level_index : level_index + 1])
            )
        split_by_name = (
            _BY_NAME[self.by_name](name) if name_split is None else name_split
        )
        folder = folders[self.folder_index] if self.folder_index < len(folders) else ""
        split_by_folder = split_of_folder(folder) if folder in self.folders else ""
        return (split_by_name if self.by_name else "") or split_by_folder

    def find_rule(
        self,
        files: Sequence[InputFile],
        existing_files: Sequence[InputFile] = (),
        name_splits: Sequence[str] = (),
    ) -> Self:
        """Returns the rule by which names define the splits of files.

        Args:
          files: the files that have rows.
          existing_files: the files of the dataset to which `files` are appended.
          name_splits: the split in the name of each file, `existing_files` first; by
            default, the word for a split in the name.

        Raises:
          InputError: only some files have a split, the name and the folder of a file
            name different splits, or an existing file would move to another split.
        """
        all_files = [*existing_files, *files]
        # Files of any name may be appended to a dataset made from train.csv.
        rule = self._find_rule(
            all_files, name_splits, may_mix=self.may_mix or bool(existing_files)
        )
        optional_name_splits: Sequence[str | None] = name_splits or [None] * len(
            all_files
        )
        splits = [
            rule.split_of(file, name_split)
            for file, name_split in zip(all_files, optional_name_splits, strict=True)
        ]
        _require_valid_names(all_files, splits)
        if rule.by_name and rule.folders:
            folder = replace(rule, by_name="")
            self._require_consistent_names(
                all_files, splits, [folder.split_of(file) for file in all_files]
            )
        if any(splits) and not all(splits) and not self.may_mix:
            raise InputError(
                _format_mixed_splits(
                    all_files,
                    splits,
                    rule.folder_level(all_files),
                    bool(existing_files),
                )
            )
        rule_before = self._find_rule(
            existing_files, name_splits[: len(existing_files)]
        )
        for file, name_split, split_after in zip(
            existing_files, optional_name_splits, splits, strict=False
        ):
            split_before = rule_before.split_of(file, name_split)
            if (split_before or "train") != (split_after or "train"):
                raise InputError(
                    f"{file.uri}: is in the split {split_before or 'train'}, but together with "
                    f"the new files its name means {split_after or 'train'}: convert all "
                    "inputs again without `append`"
                )
        counts = Counter(splits[len(existing_files) :])
        num_unsplit = counts.pop("", 0)
        names = sorted(counts, key=lambda name: (name not in TRAIN_NAMES, name))
        count_texts = [f"{name} {format_count(counts[name], 'file')}" for name in names]
        count_texts += [f"{format_count(num_unsplit, 'file')} in no split"] * (
            num_unsplit > 0
        )
        return replace(
            rule,
            names=() if num_unsplit else tuple(names),
            split_counts=", ".join(count_texts) if names else "",
        )

    def require_documented(
        self, files: Sequence[InputFile], documented: Mapping[str, str]
    ) -> None:
        """Raises InputError if a README.md contradicts the splits by names.

        The splits of the README.md and the splits by names must match one to one.
        """
        if self.requested_level != AUTO or self.may_mix or not documented:
            return
        rule = self._find_rule(files)
        name_split_by_readme_split = dict[str, str]()
        # split by names -> (split of README.md, first file)
        readme_splits = dict[str, tuple[str, str]]()
        for file in files:
            if not (split := documented.get(file.path)):
                continue
            named_split = rule.split_of(file) or "train"
            readme_split, first_path = readme_splits.setdefault(
                named_split, (split, file.path)
            )
            is_consistent = (
                name_split_by_readme_split.setdefault(split, named_split) == named_split
                and readme_split == split
            )
            if is_consistent and canonicalize_split(split) == canonicalize_split(
                named_split
            ):
                continue
            folder = file.uri.removesuffix(file.path).rstrip("/")
            beside = (
                f", next to {first_path} of the split {readme_split}"
                if readme_split != split
                else ""
            )
            raise InputError(
                f"{folder}/README.md: puts {file.path} into the split {split}, but the "
                f"names of files and folders put it into {named_split}{beside}. Move the files "
                f"of each split into a folder with its name, such as {folder}/{split}, "
                f"and convert {folder} with `split_from=1`; to read all as one input, "
                "use `split_from=none`"
            )

    def folder_level(self, files: Sequence[InputFile]) -> int | None:
        """Returns the level of the folders that name splits, if every file is in one."""
        are_in = self.folders and all(
            file.path.count("/") > self.folder_index for file in files
        )
        given_depths = {
            file.given_folder.count("/") + 1 if file.given_folder else 0
            for file in files
        }
        return (
            self.folder_index + 1 - given_depths.pop()
            if are_in and len(given_depths) == 1
            else None
        )

    @property
    def uses_key_folders(self) -> bool:
        """Returns True if folders named split=... define the splits."""
        return any(name.startswith(_SPLIT_PREFIX) for name in self.folders)

    @property
    def report_lines(self) -> tuple[tuple[str, str], ...]:
        """Returns the lines about the splits for the input report."""
        return (("splits by file", self.split_counts),) if self.split_counts else ()

    def rule_checksum(self, files: Sequence[InputFile]) -> str:
        """Returns a checksum of the splits that names may define, or ""."""
        rule = self._find_rule(files)
        splits = list(map(rule.split_of, files))
        return f"splits {crc32('/'.join(splits).encode()):08x}" if any(splits) else ""

    def _find_rule(
        self,
        files: Sequence[InputFile],
        name_splits: Sequence[str] = (),
        *,
        may_mix: bool = True,
    ) -> Self:
        """Returns the rule by which names define splits, for all files or for some.

        With `may_mix`, files without a split count as train if all others are train.
        """
        if self.requested_level != AUTO or not files:
            return self
        by_name: ByName = "word"
        if not name_splits:
            names = [file.path.rpartition("/")[2] for file in files]
            name_splits = [*map(_parse_shard_split, names)]
            if all(name_splits) and any(
                name.lower() in SPLIT_NAMES for name in name_splits
            ):
                by_name = "shard"
            elif (
                len(names) == 1
            ):  # the name of a single file, test.csv, defines no split
                name_splits = [""]
            else:
                name_splits = [*map(split_word, names)]
        rule = self._find_folder_rule(files)
        folder_splits = [*map(rule.split_of, files)]
        file_splits = {
            name_split or folder_split
            for name_split, folder_split in zip(name_splits, folder_splits, strict=True)
        }
        if file_splits - ({""} if may_mix else set()) <= TRAIN_NAMES or not any(
            file_splits
        ):
            return self  # all files are in train by default
        if not any(name_splits) or (
            _has_several_splits(folder_splits) and not _has_several_splits(name_splits)
        ):
            return rule
        return replace(rule, by_name=by_name)

    def _find_folder_rule(self, files: Sequence[InputFile]) -> Self:
        """Returns the rule by folders, at the level with most files in splits."""
        folders = Counter(file.path.rpartition("/")[0] for file in files)
        levels: dict[int, Counter[str]] = defaultdict(Counter)
        for folder, number in folders.items():
            for index, name in enumerate(folder.split("/") if folder else ()):
                levels[index][name] += number
        best_rule, best_weight = self, (0, 0)
        for index, names in sorted(levels.items()):
            split_folders = likely_splits(
                name
                for name in names
                if name.startswith(_SPLIT_PREFIX) or "=" not in name
            )
            weight = sum(names[name] for name in split_folders), len(split_folders)
            if (weight[1] > 1, weight) > (best_weight[1] > 1, best_weight):
                best_rule, best_weight = (
                    replace(self, folder_index=index, folders=split_folders),
                    weight,
                )
        return best_rule

    def _require_consistent_names(
        self,
        files: Sequence[InputFile],
        name_splits: Sequence[str],
        folder_splits: Sequence[str],
    ) -> None:
        """Raises InputError if names and folders of files contradict each other."""
        conflicts = [
            (file, name_split, folder_split)
            for file, name_split, folder_split in zip(
                files, name_splits, folder_splits, strict=True
            )
            if canonicalize_split(name_split) != canonicalize_split(folder_split)
        ]
        if (
            conflicts
            and _has_several_splits(folder_splits)
            and _has_several_splits(name_splits)
        ):
            file, name_split, folder_split = conflicts[0]
            raise InputError(
                f"{file.uri}: is in the split {name_split} by its name, and in {folder_split} by its "
                "folder; expected one. Rename such files or folders, or read all as one "
                "input with `split_from=none`"
            )


NO_SPLITS = FileSplits()


def canonicalize_split(split: str) -> str:
    """Returns the canonical name of a split, such as validation for val."""
    word = split_word(split) or split.casefold()
    return next((same[0] for same in _SYNONYMS if word in same), word)


def _has_several_splits(splits: Sequence[str]) -> bool:
    """Returns True if every file has a split and there are at least two splits."""
    return "" not in splits and len({*splits}) > 1


def _require_valid_names(files: Sequence[InputFile], splits: Sequence[str]) -> None:
    """Raises InputError if names are not valid as splits, or if there are too many."""
    file_by_split = dict(zip(reversed(splits), reversed(files), strict=True))
    for split, file in file_by_split.items():
        if split and not SPLIT_PATTERN.fullmatch(split):
            raise InputError(
                f"{file.uri}: the split {split!r} of its folder is not a valid name; "
                "expected letters, digits, '_' and '-'. Rename the folder, or use "
                "`split_from=none`"
            )
    if len(file_by_split) > MAX_SPLITS:
        raise InputError(
            f"{files[0].uri} and others: in {len(file_by_split):,} splits by their names, expected "
            f"at most {MAX_SPLITS}: use `split_from=none`"
        )


def format_exclude_option(path: str, *, glob_prefix: str = "") -> str:
    """Returns the option that excludes one file, but no file of the same name elsewhere.

    With a `glob_prefix`, the option excludes every path that ends with `path`. It is
    returned without a value if the path has characters that are special in globs or
    cannot be shown.
    """
    anchored = path if glob_prefix or "/" in path else f"/{path}"
    return (
        "`exclude`"
        if _UNSAFE_CHARACTERS.search(path)
        else f"`exclude={glob_prefix}{anchored}`"
    )


def _format_mixed_splits(
    files: Sequence[InputFile],
    splits: Sequence[str],
    level: int | None,
    is_append: bool,
) -> str:
    """Returns the error message for inputs in which only some files have a split."""
    pairs = [*zip(files, splits, strict=True)]
    unsplit_paths = [file.path for file, split in pairs if not split]
    one_each = {split: file.path for file, split in reversed(pairs) if split}
    examples = [f"{path}: {split}" for split, path in sorted(one_each.items())]
    exclude = (
        format_exclude_option(unsplit_paths[0])
        if len(unsplit_paths) == 1
        else "`exclude`"
    )
    root = files[0].uri.removesuffix(files[0].path)
    instruction = (
        "convert all inputs again, without `append`, with" if is_append else "use"
    )
    remedy = "name them like splits"
    if level is not None and 0 <= level <= 9:
        remedy = f"read each folder at that level as a split with `split_from={level}`"
    return (
        f"{root}: {format_count(len(files) - len(unsplit_paths), 'file')} in splits by their names "
        f"({format_names(examples)}), but {format_count(len(unsplit_paths), 'file')} in no split "
        f"({format_names(unsplit_paths)}). Leave out the others with {exclude}, or {remedy}; to "
        f"read all as one input, {instruction} `split_from=none`"
    )
