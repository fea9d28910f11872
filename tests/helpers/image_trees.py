"""Makes trees of images with a known truth, and reads them.

A tree is a listing of paths; each habit of naming makes it from a random generator. What
it means is known: split and class of each image, or that nobody can know it without being
asked, or that it holds a mistake that must be named. Trees may lie in wrapper folders.
tests/misreading/measure_trees.py counts how they are read.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from job_tools import examples_of, manifest_of, recordmill
from pixel_zoo import IMAGES

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.images.annotations import annotate_images
from recordmill.transforms.sources.images.find import ImageFiles
from recordmill.transforms.sources.images.options import DEFAULTS
from recordmill.transforms.sources.images.tables import LABEL, SPLIT

IMAGE = IMAGES["rgb.png"][0]
PLAIN, ASK, MISTAKE = "plain", "ask", "mistake"
RIGHT, WARNED, WRONG, REFUSED = "right", "wrong, warned", "wrong, silent", "refused"

CLASSES = (
    *("cat", "dog", "emu", "rose", "daisy", "Granny Smith", "great_white_shark"),
    *("n01440764", "n01443537", "001.Black_footed_Albatross", "T-shirt", "normal"),
    *("contest", "devil", "testbed", "valley", "trainer", "model", "Æsop", "東京"),
)
# As the names of splits are written; the third is there or not.
WORDS = (
    *(
        ("train", "test", "val"),
        ("train", "val", "test"),
        ("training", "testing", "dev"),
    ),
    *(("Train", "Test", "Valid"), ("Training", "Testing", "Validation")),
    *(("TRAIN", "TEST", "VAL"), ("train", "validation", "test")),
)
SUFFIXES = ("_set", "_data", "_images", "-images", "set", "Set", " set", "_img", "_256")
PREFIXES = ("seg_", "dataset_", "cifar-", "images_", "My ", "flowers_", "x", "0_")
WRAPPERS = (
    *("data", "dataset", "images", "archive", "PetImages", "img", "raw-img", "final"),
    *("v1.0", "flower_photos", "Train & Co", "unzipped"),
)


@dataclass(frozen=True)
class Tree:
    """The paths of some images, and what they mean."""

    habit: str
    kind: str
    images: dict[str, tuple[str, str]]  # path -> (split, class); "" for none


class _Maker:
    """Draws names and numbers of images."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def classes(self, names: Sequence[str] = CLASSES, fewest: int = 2) -> list[str]:
        return self.random.sample(
            names, self.random.randint(fewest, min(7, len(names)))
        )

    def words(self) -> tuple[str, ...]:
        words = self.random.choice(WORDS)
        return words[: self.random.choice((2, 2, 3))]

    def below(self, folder: str) -> list[str]:
        """Returns the paths of some images in a folder; some lie a folder deeper."""
        deeper = self.random.random() < 0.1
        sub = self.random.choice(("a", "2019", "more")) + "/" if deeper else ""
        number = self.random.randint(1, 4)
        paths = [f"{folder}/{index}.jpg" for index in range(number)]
        return [*paths, f"{folder}/{sub}{number}.jpg"]

    def tree(
        self, splits: Sequence[str], classes: Sequence[str], between: Sequence[str] = ()
    ) -> dict[str, tuple[str, str]]:
        """Returns the images of classes in splits, with a folder between them or none."""
        images = {}
        for at, split in enumerate(splits):
            # Not each class is in each split, but all are in the first.
            number = len(classes) if not at else self.random.randint(2, len(classes))
            for label in self.random.sample(list(classes), number):
                folder = "/".join(filter(None, (split, *between[at : at + 1], label)))
                place = split.replace(" ", "_"), label
                images |= dict.fromkeys(self.below(folder), place)
        return images

    def wrapped(self, images: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        names = self.random.sample(WRAPPERS, self.random.choice((0, 0, 1, 2)))
        top = "".join(f"{name}/" for name in names)
        return {top + path: place for path, place in images.items()}


def _classes(make: _Maker) -> Tree:
    return Tree("classes", PLAIN, make.tree([""], make.classes()))


def _words(make: _Maker) -> Tree:
    return Tree("train/ test/", PLAIN, make.tree(make.words(), make.classes()))


def _suffixes(make: _Maker) -> Tree:
    suffix = make.random.choice(SUFFIXES)
    splits = [word + suffix for word in make.words()]
    return Tree("training_set/ test_set/", PLAIN, make.tree(splits, make.classes()))


def _years(make: _Maker) -> Tree:
    random = make.random
    year, mark = random.randint(1998, 2026), random.choice(("", "", "_", "-"))
    same = random.random() < 0.7
    splits = [
        f"{word}{mark}{year if same else year - at}"
        for at, word in enumerate(make.words())
    ]
    return Tree("train2017/ val2017/", PLAIN, make.tree(splits, make.classes()))


def _prefixes(make: _Maker) -> Tree:
    prefix = make.random.choice(PREFIXES)
    splits = [prefix + word for word in make.words()]
    return Tree("seg_train/ seg_test/", PLAIN, make.tree(splits, make.classes()))


def _between(make: _Maker) -> Tree:
    prefix = make.random.choice(("", "seg_"))
    splits = [prefix + word for word in make.words()]
    one_name = [make.random.choice(WRAPPERS)] * len(splits)
    between = make.random.choice((splits, one_name))
    return Tree("train/images/cat/", PLAIN, make.tree(splits, make.classes(), between))


def _class_first(make: _Maker) -> Tree:
    affix = make.random.choice(("", "", "_set", "2017"))
    splits = [word + affix for word in make.words()]
    images = {
        f"{label}/{split}/{index}.jpg": (split, label)
        for label in make.classes()
        for split in splits
        for index in range(make.random.randint(1, 4))
    }
    return Tree("cat/train/ cat/test/", PLAIN, images)


def _numbers(make: _Maker) -> Tree:
    start = make.random.choice((0, 1))
    classes = [
        str(number) for number in range(start, start + make.random.randint(3, 120))
    ]
    splits = make.words() if make.random.random() < 0.5 else ("",)
    images = {
        f"{split}/{label}/1.jpg".lstrip("/"): (split, label)
        for split in splits
        for label in classes
    }
    return Tree("1, 2, 10", PLAIN, images)


def _twins(make: _Maker) -> Tree:
    classes = make.classes(("cat", "dog", "café", "Ångström", "rose", "Zürich"), 3)
    one = make.random.choice(classes)
    twins = {
        one.upper(),
        one.title(),
        one.swapcase(),
        unicodedata.normalize("NFD", one),
    }
    other = make.random.choice(sorted(twins - {one}))
    splits = make.words() if make.random.random() < 0.5 else ("",)
    images = make.tree(splits, classes)
    split = make.random.choice(splits)
    path = f"{split}/{other}/x.jpg".lstrip("/")
    if make.random.random() < 0.5:  # in the other split only
        images = {p: place for p, place in images.items() if place != (split, one)}
    if not any(label == one for _, label in images.values()):
        images[f"{splits[0]}/{one}/y.jpg".lstrip("/")] = (splits[0], one)
    return Tree("Cat/ cat/, NFC, NFD", MISTAKE, images | {path: (split, other)})


def _likely_classes(make: _Maker) -> Tree:
    odd = ("train", "test_tube", "bullet_train", "train_station", "contest", "dev_board",
           "training shoe", "protest", "valid_ticket", "Val_d_Isere")  # fmt: skip
    names = make.random.sample(odd, make.random.choice((1, 1, 2)))
    classes = [*names, *make.classes(("bus", "car", "truck", "cat", "dog"))]
    images = {
        f"{label}/{index}.jpg": ("", label)
        for label in classes
        for index in range(make.random.randint(1, 4))
    }
    return Tree("a class train/", PLAIN, images)


def _flat(make: _Maker) -> Tree:
    tail = make.random.choice(("", "", "_set", "2017"))
    images = {
        f"{word}{tail}/{index}.jpg": ("", "")
        for word in make.words()
        for index in range(make.random.randint(1, 4))
    }
    return Tree("train/*.jpg test/*.jpg", ASK, images)


def _beside(make: _Maker) -> Tree:
    """Splits beside a folder of another name: without labels, of masks, of more."""
    prefix = make.random.choice(("", "seg_"))
    splits = [prefix + word for word in make.words()]
    other = prefix + make.random.choice(("pred", "extra", "unlabeled", "query", "more"))
    images = make.tree(splits, make.classes())
    if make.random.random() < 0.3:  # of a split that has no labels
        images = make.tree(splits[:1], make.classes())
        other = f"{splits[1]}/{make.random.choice(('images', 'unknown', 'all'))}"
    images |= {f"{other}/{index}.jpg": ("", "") for index in range(3)}
    return Tree("train/cat/ test/images/ pred/", ASK, images)


HABITS: tuple[Callable[[_Maker], Tree], ...] = (
    *(_classes, _words, _suffixes, _years, _prefixes, _between, _class_first),
    *(_numbers, _twins, _likely_classes, _flat, _beside),
)


def make_tree(seed: int, number: int) -> Tree:
    """Returns the tree of this number; habits take turns."""
    make = _Maker(Random(f"{seed} {number}"))
    tree = HABITS[number % len(HABITS)](make)
    return Tree(tree.habit, tree.kind, make.wrapped(tree.images))


def write_images(tree: Tree, root: Path) -> None:
    for path in tree.images:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(IMAGE)


def read_listing(tree: Tree) -> str:
    """Returns how the function that the command calls reads a tree."""
    with TemporaryDirectory() as folder:
        write_images(tree, Path(folder))
        files = Inventory.from_files(
            InputFile(path, f"{folder}/{path}", len(IMAGE))
            for path in sorted(tree.images, key=lambda path: path.split("/"))
        )
        try:
            found = annotate_images(
                ImageFiles(files, ()), {}, DEFAULTS, None, NO_OPTIONS
            )
        except InputError:
            return REFUSED
    splits, labels = (found.table[name].to_pylist() for name in (SPLIT, LABEL))
    paths = [file.path for file in found.files]
    places = {
        path: (split or "", label or "")
        for path, split, label in zip(paths, splits, labels, strict=True)
    }
    return judged(tree, places, found.classes, found.warnings)


def judged(
    tree: Tree,
    places: dict[str, tuple[str, str]],
    classes: Sequence[str],
    warnings: Sequence[str],
) -> str:
    """Compares what was read with the truth."""
    names = {label for _, label in tree.images.values()}
    in_order = sorted(names)
    if all(name.isdigit() for name in names):
        in_order = sorted(names, key=int)
    if tree.kind == PLAIN and places == tree.images and list(classes) == in_order:
        return RIGHT
    return WARNED if warnings else WRONG


def run_command(tree: Tree, folder: Path) -> str:
    """Returns how the command reads a tree."""
    root, out = folder / "in", folder / "out"
    write_images(tree, root)
    ran = recordmill("convert", "images", root, out, "--max-rejects", 1_000, "--json")
    if ran.status:
        return REFUSED
    (labels,) = out.glob("*label.labels.txt") or [None]
    classes = labels.read_text().splitlines()
    has_splits = any(split for split, _ in tree.images.values())
    splits = {split: split for split in manifest_of(out)["splits"]}
    if not has_splits and splits.keys() == {"train"}:  # the split of images in none
        splits = {"train": ""}
    places = {}
    for split, name in splits.items():
        for example in examples_of(out, split or "train"):
            feature = example.features.feature
            path = feature["filename"].bytes_list.value[0].decode()
            label = classes[feature["label"].int64_list.value[0]]
            places[path] = (name, label)
    warnings = json.loads(ran.out)["understood"]["warnings"]
    return judged(tree, places, classes, warnings)
