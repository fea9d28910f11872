"""Retries what fails for a moment: an action that is safe to repeat."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from recordmill.transforms.storage.storage_errors import is_transient

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long transient errors are retried.

    Attributes:
      tries: largest number of tries.
      first_seconds: longest pause after the first try; doubled each time.
      longest_seconds: longest pause at all.
      limit_seconds: no try begins later than this after the first one began.
    """

    tries: int = 10
    first_seconds: float = 0.2
    longest_seconds: float = 15.0
    limit_seconds: float = 180.0


DEFAULT_RETRIES = RetryPolicy()
SHORT_RETRIES = RetryPolicy(tries=3, limit_seconds=10.0)


def with_retries(
    action: Callable[[], _Result], retry_policy: RetryPolicy = DEFAULT_RETRIES
) -> _Result:
    """Calls an action that is safe to repeat, until it succeeds; returns its result.

    Pauses between tries are random and grow. The last transient error is raised as it
    is, with a note that says how often and how long it was tried.
    """
    began = time.monotonic()
    for tried in range(1, retry_policy.tries + 1):
        try:
            return action()
        except Exception as error:
            if not is_transient(error):
                raise
            bound = retry_policy.first_seconds * 2 ** (tried - 1)
            # Random, so that workers who met the same error do not all retry at once.
            pause = random.uniform(0.3, 1.0) * min(bound, retry_policy.longest_seconds)
            spent = time.monotonic() - began
            if (
                tried == retry_policy.tries
                or spent + pause > retry_policy.limit_seconds
            ):
                error.add_note(f"tried {tried} times in {spent:.0f} s")
                raise
            time.sleep(pause)
    raise AssertionError("a retry policy has at least one try")
