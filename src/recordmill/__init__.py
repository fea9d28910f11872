"""Offers the names that users import: `from recordmill import WriteDataset, ReadDataset`.

A name is imported on first use, so that the command and the workers do not load what they
do not use. Installed, the three folders of the project are below this package:
recordmill.beam_jobs, recordmill.transforms and recordmill.schemas.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.beam_jobs.pipelines.read_dataset import ReadDataset
    from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
    from recordmill.transforms.rows.mix import mix
    from recordmill.transforms.rows.open_dataset import Dataset, open_dataset
    from recordmill.transforms.rows.read_rows import read_batches, read_rows
    from recordmill.transforms.rows.torch_rows import TorchRows

__all__ = [
    "Dataset",
    "ReadDataset",
    "TorchRows",
    "WriteDataset",
    "mix",
    "open_dataset",
    "read_batches",
    "read_rows",
]
if find_spec("torch") is None:  # `import *` and help() import every name
    __all__.remove("TorchRows")  # noqa: PYI056

_MODULES = {
    "Dataset": "recordmill.transforms.rows.open_dataset",
    "ReadDataset": "recordmill.beam_jobs.pipelines.read_dataset",
    "TorchRows": "recordmill.transforms.rows.torch_rows",
    "WriteDataset": "recordmill.beam_jobs.pipelines.write_dataset",
    "mix": "recordmill.transforms.rows.mix",
    "open_dataset": "recordmill.transforms.rows.open_dataset",
    "read_batches": "recordmill.transforms.rows.read_rows",
    "read_rows": "recordmill.transforms.rows.read_rows",
}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562), and looks the version up."""
    if name == "__version__":
        from importlib.metadata import version

        return version("recordmill")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
