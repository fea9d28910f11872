"""How much is tried: examples of Hypothesis, and steps that a run is killed at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

_Item = TypeVar("_Item")
# Set by the Makefile: 0.1 in `make test-fast`, 20 in `make fuzz`.
FACTOR = float(os.environ.get("RECORDMILL_EXAMPLES", "0.4"))


def examples(count: int) -> settings:
    """Returns settings for that many examples, more or fewer by the kind of run."""
    # How long an example takes tells more of the machine's load than of the code.
    return settings(max_examples=max(5, round(count * FACTOR)), deadline=None)


def steps_to_kill_at(end: int) -> range:
    """Returns every third step below `end`, or every one in `make fuzz`."""
    return range(0, end, 1 if FACTOR > 1 else 3)


def thinned(items: Sequence[_Item]) -> Sequence[_Item]:
    """Returns every second one, or all in `make fuzz`."""
    return items if FACTOR > 1 else items[::2]
