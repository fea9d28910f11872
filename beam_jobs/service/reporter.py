"""Defines what a run tells of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.tasks.context import RunContext


class Reporter(Protocol):
    """Shows a run's progress to a person."""

    def doing(self, stage: str, what: str) -> None: ...

    def tell(self, understood: Understood) -> None: ...

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None: ...

    def poll(self) -> None: ...

    def end(self) -> None: ...
