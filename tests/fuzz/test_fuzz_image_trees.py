"""Trees of images with a known truth are read right, or asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_trees import (
    ASK,
    HABITS,
    PLAIN,
    REFUSED,
    RIGHT,
    WARNED,
    make_tree,
    read_listing,
    run_command,
)
from mutations import try_all

pytestmark = pytest.mark.fuzz


def test_trees_of_twelve_habits() -> None:
    def attempt(number: int) -> bool:
        tree = make_tree(7, number)
        expected = {PLAIN: {RIGHT}, ASK: {REFUSED, WARNED}}.get(tree.kind, {REFUSED})
        assert read_listing(tree) in expected, tree
        return tree.kind == PLAIN

    assert try_all(attempt) == []


@pytest.mark.parametrize("number", range(len(HABITS)))
def test_the_command_reads_what_the_function_reads(tmp_path: Path, number: int) -> None:
    tree = make_tree(7, number)
    assert run_command(tree, tmp_path) == read_listing(tree)
