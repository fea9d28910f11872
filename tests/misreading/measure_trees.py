"""Measures how trees of images with a known truth are read: by recordmill and by others.

    python tests/misreading/measure_trees.py --seed 1 --cases 20000 --command 300
    python tests/misreading/measure_trees.py --cases 2000 --imagefolder /path/to/python
    python tests/misreading/measure_trees.py --cases 2000 --torchvision folder.py

Listings go through the function that the command calls; some trees through the command
itself. Hugging Face's `imagefolder` runs in an interpreter that has `datasets`: its
patterns of splits and its rule of labels, on empty files, as it decodes none before the
first row is asked for. torchvision's own `datasets/folder.py` runs without torch: of its
ImageFolder, `find_classes` and `make_dataset` decide, given the folder below the wrappers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "helpers"))

from image_trees import (  # noqa: E402
    PLAIN,
    REFUSED,
    RIGHT,
    WARNED,
    WRONG,
    Tree,
    judged,
    make_tree,
    read_listing,
    run_command,
)

Places = dict[str, tuple[str, str]]  # path -> (split, class)

_IMAGEFOLDER = r"""
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import datasets
datasets.disable_progress_bars()
for line in sys.stdin:
    root = line.rstrip("\n")
    try:
        builder = datasets.load_dataset_builder("imagefolder", data_dir=root)
        places = []
        for split in builder._split_generators(datasets.DownloadManager()):
            for path, _, _ in split.gen_kwargs["files"]:
                label = os.path.basename(os.path.dirname(str(path)))
                label = label if split.gen_kwargs["add_labels"] else ""
                places.append([os.path.relpath(str(path), root), str(split.name), label])
        label = builder.info.features.get("label")
        print(json.dumps([places, label.names if label else []]), flush=True)
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
"""


def _by_command(tree: Tree) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return run_command(tree, Path(folder))


def _on_disk(tree: Tree, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for path in tree.images:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def _split_of_hugging_face(folder: str, *, any_split: bool) -> str:
    """Returns what `datasets` calls the split of a folder; "train" if there is none."""
    for word, split in (("val", "validation"), ("dev", "validation"), ("test", "test")):
        if any_split and word in folder.lower():
            return split
    return "train"


def _read_as_imagefolder(
    tree: Tree, root: Path, peer: subprocess.Popen[str]
) -> tuple[Places, Places, list[str]] | None:
    """Returns what is true, in the words of `datasets`, and what it finds."""
    _on_disk(tree, root)
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(f"{root}\n")
    peer.stdin.flush()
    answer = json.loads(peer.stdout.readline())
    if isinstance(answer, str):
        return None
    some = any(split for split, _ in tree.images.values())
    true = {
        path: (_split_of_hugging_face(split, any_split=some), label)
        for path, (split, label) in tree.images.items()
    }
    places, classes = answer
    found = {path: (split, label) for path, split, label in places}
    if len(found) < len(places):  # a file in two splits
        found = {}
    return true, found, classes


def _folder_module(path: Path) -> Any:
    """Returns torchvision's module on folders; the class above its datasets has no use."""
    vision = types.ModuleType("torchvision.datasets.vision")
    vars(vision)["VisionDataset"] = object
    sys.modules["torchvision.datasets.vision"] = vision
    module = types.ModuleType("torchvision.datasets.folder")
    module.__package__ = "torchvision.datasets"
    exec(compile(path.read_bytes(), path, "exec"), vars(module))
    return module


def _read_as_torchvision(
    tree: Tree, root: Path, module: Any
) -> tuple[Places, Places, list[str]] | None:
    """Returns what is true, and what torchvision's ImageFolder finds."""
    _on_disk(tree, root)
    below = os.path.commonpath([Path(path).parent for path in tree.images])
    try:
        classes, numbers = module.find_classes(root / below)
        samples = module.make_dataset(
            root / below, numbers, extensions=module.IMG_EXTENSIONS
        )
    except FileNotFoundError:
        return None
    found = {os.path.relpath(path, root): ("", classes[at]) for path, at in samples}
    return tree.images, found, classes


def read_by_peer(
    tree: Tree, read: Callable[[Tree], tuple[Places, Places, list[str]] | None]
) -> str:
    """Returns the outcome of a tree; a peer warns of nothing."""
    answer = read(tree)
    if answer is None:
        return REFUSED
    true, found, classes = answer
    return judged(Tree(tree.habit, tree.kind, true), found, classes, ())


def count_outcomes(
    seed: int, number: int, read: Callable[[Tree], str]
) -> dict[str, Counter[str]]:
    """Returns how often the trees of each habit are read how."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for index in range(number):
        tree = make_tree(seed, index)
        found[f"{tree.kind}: {tree.habit}"][read(tree)] += 1
    return found


def report(title: str, seed: int, number: int, read: Callable[[Tree], str]) -> None:
    """Prints how trees are read, by habit and in all."""
    if not number:
        return
    found = count_outcomes(seed, number, read)
    print(f"{number:,} trees {title}, seed {seed}")
    for name, each in found.items():
        told = ", ".join(f"{each[how]:,} {how}" for how in sorted(each))
        print(f"  {name:36} {told}")
    plain = [each for name, each in found.items() if name.startswith(PLAIN)]
    of_plain = sum(each.total() for each in plain)
    for what, some, whole in (
        ("wrong in silence", sum(each[WRONG] for each in found.values()), number),
        ("right", sum(each[RIGHT] for each in plain), of_plain),
        ("refused", sum(each[REFUSED] for each in plain), of_plain),
        ("wrong with a warning", sum(each[WARNED] for each in plain), of_plain),
    ):
        of = "all" if whole is number else "the plain ones"
        print(f"  {what}: {some:,} of {of}, {some / whole:.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--command", type=int, default=0)
    parser.add_argument("--imagefolder", default="", help="a Python with `datasets`")
    parser.add_argument("--torchvision", type=Path, help="its datasets/folder.py")
    asked = parser.parse_args()
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        root = Path(folder) / "in"
        if asked.imagefolder:
            with subprocess.Popen(
                [asked.imagefolder, "-c", _IMAGEFOLDER],
                env={**os.environ, "HF_HOME": f"{folder}/home"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as peer:
                read = partial(_read_as_imagefolder, root=root, peer=peer)
                by = partial(read_by_peer, read=read)
                report("by Hugging Face imagefolder", asked.seed, asked.cases, by)
        if asked.torchvision:
            module = _folder_module(asked.torchvision)
            read = partial(_read_as_torchvision, root=root, module=module)
            by = partial(read_by_peer, read=read)
            report("by torchvision ImageFolder", asked.seed, asked.cases, by)
    if not asked.imagefolder and not asked.torchvision:
        report("by their listing", asked.seed, asked.cases, read_listing)
        report("by the command", asked.seed, asked.command, _by_command)


if __name__ == "__main__":
    main()
