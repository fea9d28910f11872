"""Says which options of labels and splits contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def split_contradictions(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the options together: (option, text).

    Args:
      given: values by option name; what is not given is left out.
    """
    if "label" in given and "schema" in given:
        yield (
            "label",
            "a schema file says itself which column is a class label (`classes`); leave "
            "out `label` or `schema`",
        )
    column = given.get("label")
    if column is not None and column == given.get("split_column"):
        yield (
            "label",
            f"{column} is the column of `split_column`, too, which is no feature; leave "
            "out one of them",
        )
    others = ("splits", "split_by", "split_exact", "stratify_by")
    for option, more in (("split_column", "split_by_time"), ("split_by_time", "")):
        if option in given and (other := _first(given, more, *others)):
            yield (
                option,
                f"tells the split of each row, and so leaves nothing to `{other}`; leave "
                "out one of them",
            )
    if exact := _first(given, "stratify_by", "split_exact"):
        if not given.get("splits"):
            yield exact, "requires `splits`, such as train=0.8 and test=0.2"
        elif given.get("split_by"):
            yield (
                exact,
                "counts single rows, but `split_by` keeps groups of them together; leave "
                "out one of them",
            )


def _first(given: Mapping[str, Any], *options: str) -> str:
    """Returns the first of these options that is given, or ""."""
    return next((name for name in options if given.get(name)), "")
