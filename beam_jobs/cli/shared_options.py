"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recordmill.schemas.job.storage_options import BothSides

storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Of the file systems; input:KEY=VALUE for one side. Never a secret.",
)

feature_names_option = click.option(
    "--feature-names",
    type=click.Choice(["default", "tutorial", "imagenet"]),
    default="default",
    show_default=True,
)

variant_option = click.option(
    "--variant",
    type=click.Choice(["auto", "cifar10", "cifar100"]),
    default="auto",
    show_default=True,
)


def storage_of(given: Sequence[str]) -> BothSides:
    """The options of both sides.

    Raises:
      UsageError: no KEY=VALUE, or a secret.
    """
    from recordmill.schemas.job.storage_options import parse_storage_options

    return parse_storage_options(given)
