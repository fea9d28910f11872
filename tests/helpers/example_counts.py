"""How much is tried: examples of Hypothesis, and steps that a run is killed at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings

_Item = TypeVar("_Item")
# Set by the Makefile: 0.1 in `make test-fast`, 20 in `make test-long`.
FACTOR = float(os.environ.get("RECORDMILL_EXAMPLES", "0.2"))
# How many inputs a fuzzer tries of each kind; 20,000 in `make fuzz`.
FUZZ = int(os.environ.get("RECORDMILL_FUZZ_EXAMPLES", round(375 * FACTOR)))
# `make test` tries the same examples each time: what a change did not break never stops it.
# `make test-long` and `make fuzz` try others in each run.
_REPEATED = FACTOR <= 1


def examples(count: int) -> settings:
    """Returns settings for that many examples, more or fewer by the kind of run."""
    # How long an example takes tells more of the machine's load than of the code.
    count = max(5, round(count * FACTOR))
    return settings(max_examples=count, deadline=None, derandomize=_REPEATED)


def fuzzed(share: float = 1.0) -> settings:
    """Returns settings for the inputs that a fuzzer tries, or a share of them."""
    return settings(
        max_examples=max(5, round(FUZZ * share)),
        suppress_health_check=[HealthCheck.too_slow],
        deadline=None,
        derandomize=_REPEATED and "RECORDMILL_FUZZ_EXAMPLES" not in os.environ,
    )


def steps_to_kill_at(end: int) -> range:
    """Returns every seventh step below `end`, or every one in `make test-long`."""
    return range(0, end, 1 if FACTOR > 1 else 7)


def thinned(items: Sequence[_Item]) -> Sequence[_Item]:
    """Returns every second one, or all in `make test-long`."""
    return items if FACTOR > 1 else items[::2]
